"""The shapes of keys and tokens that begin with a mark of their issuer.

The marks and lengths are those that the issuers document and that the rules of gitleaks (MIT, July 2026) and GitHub's
secret scanning look for. Where an issuer gives an exact length, a longer one is taken too: formats grow.
"""

from __future__ import annotations

from typing import Final

_WORD: Final = r"[A-Za-z0-9_-]"

SHAPES: Final[tuple[tuple[str, str, str], ...]] = (
    # clouds
    ("aws-access-key", "AKIA ASIA ABIA ACCA", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9_])"),
    ("google-api-key", "AIza", rf"AIza{_WORD}{{35,}}"),
    ("google-api-key", "AQ.Ab", rf"AQ\.Ab{_WORD}{{40,}}"),
    ("google-oauth-token", "ya29.", rf"ya29\.{_WORD}{{20,}}"),
    ("google-oauth-token", "1//0", rf"1//0{_WORD}{{40,}}"),
    ("google-client-secret", "GOCSPX-", rf"GOCSPX-{_WORD}{{28}}"),
    ("azure-key", "Q~", r"[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}"),
    ("azure-key", "JQQJ99", r"[A-Za-z0-9]{40,60}JQQJ99[A-Za-z0-9]{20,40}"),
    ("alibaba-access-key", "LTAI", r"LTAI[A-Za-z0-9]{17,21}(?![A-Za-z0-9_])"),
    ("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", r"do[opr]_v1_[0-9a-f]{64}"),
    ("heroku-key", "HRKU-", rf"HRKU-{_WORD}{{36,}}"),
    ("flyio-token", "fm1a_ fm1r_ fm2_", r"fm(?:1[ar]|2)_[A-Za-z0-9+/]{100,}"),
    ("databricks-token", "dapi", r"dapi[0-9a-f]{32}"),
    ("planetscale-token", "pscale_", r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_=.-]{32,}"),
    ("supabase-key", "sbp_ sb_secret_", rf"(?:sbp_[0-9a-f]{{40}}|sb_secret_{_WORD}{{20,}})"),
    ("neon-key", "napi_", r"napi_[A-Za-z0-9]{60,}"),
    # models and what agents use with them
    ("anthropic-key", "sk-ant-", rf"sk-ant-{_WORD}{{20,}}"),
    ("langfuse-key", "sk-lf-", r"sk-lf-[0-9a-f-]{36}"),
    ("openai-key", "sk-", rf"sk-(?:(?:proj|svcacct|admin|None|or-v1)-{_WORD}{{20,}}|[A-Za-z0-9]{{20,}})"),
    ("elevenlabs-key", "sk_", r"sk_[0-9a-f]{48}"),
    ("groq-key", "gsk_", r"gsk_[A-Za-z0-9]{40,}"),
    ("xai-key", "xai-", r"xai-[A-Za-z0-9]{60,}"),
    ("perplexity-key", "pplx-", r"pplx-[A-Za-z0-9]{40,}"),
    ("replicate-token", "r8_", r"r8_[A-Za-z0-9]{37,}"),
    ("nvidia-key", "nvapi-", rf"nvapi-{_WORD}{{60,}}"),
    ("together-key", "tgp_v1_", rf"tgp_v1_{_WORD}{{40,}}"),
    ("huggingface-token", "hf_ api_org_", r"(?:hf|api_org)_[A-Za-z0-9]{30,}"),
    ("langsmith-key", "lsv2_", r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    ("pinecone-key", "pcsk_", r"pcsk_[A-Za-z0-9]{5,6}_[A-Za-z0-9]{40,}"),
    ("tavily-key", "tvly-", r"tvly-[A-Za-z0-9-]{24,}"),
    # code and its delivery
    ("gitlab-token", "glpat- glptt- gldt- glrt- glcbt- glft- glimt- glagent- gloas- glsoat- glffct-",
     rf"gl(?:pat|ptt|dt|rt|cbt|ft|imt|agent|oas|soat|ffct)-{_WORD}{{20,}}+(?:\.{_WORD}++)*+"),
    ("gitlab-token", "GR1348941", rf"GR1348941{_WORD}{{20}}"),
    ("npm-token", "npm_", r"npm_[A-Za-z0-9]{36,}"),
    ("pypi-token", "pypi-AgE", rf"pypi-AgE{_WORD}{{50,}}"),
    ("rubygems-key", "rubygems_", r"rubygems_[0-9a-f]{48}"),
    ("docker-token", "dckr_", rf"dckr_[po]at_{_WORD}{{27,}}"),
    ("pulumi-token", "pul-", r"pul-[0-9a-f]{40}"),
    ("terraform-token", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}"),
    ("vault-token", "hvs. hvb. hvr.", rf"hv[sbr]\.{_WORD}{{24,}}"),
    ("doppler-token", "dp.", r"dp\.(?:pt|st|sa|ct|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,}"),
    ("onepassword-token", "ops_eyJ", r"ops_eyJ[A-Za-z0-9+/=_-]{100,}"),
    ("age-key", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-(?:PQ-)?1[A-Z0-9]{58,}"),
    ("artifactory-key", "AKCp", r"AKCp[A-Za-z0-9]{60,}"),
    ("openshift-token", "sha256~", rf"sha256~{_WORD}{{43}}"),
    ("postman-key", "PMAK-", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    ("figma-token", "figd_", rf"figd_{_WORD}{{40,}}"),
    # watching
    ("grafana-token", "glsa_ glc_", r"(?:glsa_[A-Za-z0-9]{32}_[0-9A-Fa-f]{8}|glc_[A-Za-z0-9+/]{32,}={0,3})"),
    ("sentry-token", "sntrys_ sntryu_", r"sntry(?:s_[A-Za-z0-9+/=_]{60,}|u_[0-9a-f]{64})"),
    ("newrelic-key", "NRAK-", r"NRAK-[A-Z0-9]{27}"),
    ("dynatrace-token", "dt0", r"dt0[a-z]\d\d\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    # talking, working and paying
    ("slack-token", "xox", r"xox[abcdeoprs]-[A-Za-z0-9%-]{15,}"),
    ("slack-token", "xapp- xwfp-", r"(?:xapp-\d-|xwfp-)[A-Za-z0-9-]{20,}"),
    ("telegram-token", ":AA", rf"\d{{8,10}}:AA{_WORD}{{33}}(?!{_WORD})"),
    ("twilio-key", "SK", r"SK[0-9a-f]{32}(?![A-Za-z0-9_])"),
    ("sendgrid-key", "SG.", rf"SG\.{_WORD}{{16,32}}\.{_WORD}{{32,64}}"),
    ("brevo-key", "xkeysib-", r"xkeysib-[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    ("atlassian-token", "ATATT3 ATCTT3", r"AT[AC]TT3[A-Za-z0-9_=-]{100,}"),
    ("linear-key", "lin_api_ lin_oauth_", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}"),
    ("notion-token", "ntn_", r"ntn_[A-Za-z0-9]{40,}"),
    ("stripe-key", "k_live_ k_test_ k_prod_", r"[sr]k_(?:live|test|prod)_[A-Za-z0-9]{16,}"),
    ("stripe-webhook-secret", "whsec_", r"whsec_[A-Za-z0-9+/=]{24,}"),
    ("shopify-token", "shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    ("square-token", "sq0atp- sq0csp-", rf"sq0(?:atp|csp)-{_WORD}{{22,}}"),
)  # fmt: skip
"""Each with its name, what a text (in lower or upper case) has when the shape is in it, and its pattern.

All are at least 20 characters long, without white space among them.
"""
