"use strict";
// Shows the OpenAPI document and sends requests. Everything is put in as text, never as markup.

const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

const resolve = (spec, schema) => {
  let found = schema || {};
  while (found.$ref) found = found.$ref.split("/").slice(1).reduce((at, name) => at[name], spec);
  return found;
};

// A value to begin with: defaults, and something of the right type for what is required.
const example = (spec, schema, depth = 0) => {
  const found = resolve(spec, schema);
  if ("default" in found) return found.default;
  if (found.enum) return found.enum[0];
  if (found.anyOf) return example(spec, found.anyOf[0], depth);
  if (found.type === "object") {
    const names = depth > 3 ? [] : found.required || [];
    return Object.fromEntries(names.map((name) => [name, example(spec, (found.properties || {})[name], depth + 1)]));
  }
  if (found.type === "array") return depth > 3 ? [] : [example(spec, found.items, depth + 1)];
  if (found.type === "boolean") return false;
  if (found.type === "integer" || found.type === "number") return found.minimum || 0;
  if (found.format === "date-time") return new Date().toISOString();
  return "";
};

const parameterField = (spec, parameter) => {
  const schema = resolve(spec, parameter.schema);
  const input = make("input", { value: parameter.in === "query" ? String(schema.default ?? "") : "" });
  const note = parameter.description || schema.description || "";
  return { parameter, input, label: make("label", {}, parameter.name, " ", make("small", { textContent: note }), input) };
};

const bodyField = (spec, operation) => {
  if (!operation.requestBody) return null;
  const [type, { schema }] = Object.entries(operation.requestBody.content)[0];
  const isJson = type === "application/json";
  const input = isJson
    ? make("textarea", { value: JSON.stringify(example(spec, schema), null, 2) })
    : make("input", { type: "file" });
  return { type, value: () => (isJson ? input.value : input.files[0]), label: make("label", {}, `body (${type})`, input) };
};

const address = (path, fields) => {
  const query = new URLSearchParams();
  for (const { parameter, input } of fields) {
    if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    else if (input.value !== "") query.set(parameter.name, input.value);
  }
  return query.size ? `${path}?${query}` : path;
};

const shown = async (response) => {
  const head = `${response.status} ${response.statusText}\n`;
  const type = response.headers.get("content-type") || "";
  if (type.startsWith("application/octet-stream")) return `${head}(${(await response.blob()).size} bytes)`;
  const text = await response.text();
  return head + (type.includes("json") ? JSON.stringify(JSON.parse(text), null, 2) : text);
};

const send = async (method, path, fields, body, output) => {
  const headers = {};
  const key = document.getElementById("key").value.trim();
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body) headers["Content-Type"] = body.type;
  output.textContent = "...";
  try {
    output.textContent = await shown(await fetch(address(path, fields), { method, headers, body: body?.value() }));
  } catch (error) {
    output.textContent = String(error);
  }
};

const section = (spec, path, name, operation) => {
  const method = name.toUpperCase();
  const fields = operation.parameters.map((parameter) => parameterField(spec, parameter));
  const body = bodyField(spec, operation);
  const output = make("pre", { hidden: true });
  const button = make("button", { textContent: "Send" });
  button.addEventListener("click", () => {
    output.hidden = false;
    send(method, path, fields, body, output);
  });
  const head = make("summary", {}, make("code", { className: "method", textContent: method }), make("code", { textContent: path }));
  const parts = [head, make("p", { textContent: operation.summary }), ...fields.map((field) => field.label)];
  if (body) parts.push(body.label);
  return make("details", {}, ...parts, button, output);
};

const show = async () => {
  const spec = await (await fetch("/openapi.json")).json();
  document.getElementById("about").textContent = `${spec.info.description}\nVersion ${spec.info.version}.`;
  for (const [path, methods] of Object.entries(spec.paths)) {
    for (const [name, operation] of Object.entries(methods)) {
      document.getElementById("operations").append(section(spec, path, name, operation));
    }
  }
};

show();
