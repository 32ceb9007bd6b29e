"""The shop charges what it should, and never through the deprecated interface."""

import unittest
import warnings

from shop import (
    battery,
    deposits,
    donations,
    gift_cards,
    invoices,
    late_fees,
    orders,
    parking,
    renewals,
    repairs,
    reports,
    shipping,
    subscriptions,
    tips,
)

CHARGES = [
    (lambda: deposits.take_deposit("ann", 2), 10000),
    (lambda: donations.donate("ann", 3.5), 350),
    (lambda: gift_cards.sell("ann", 25), 2500),
    (lambda: invoices.settle("ann", [199, 250]), 449),
    (lambda: late_fees.charge_late_fee("ann", 4), 500),
    (lambda: late_fees.charge_late_fee("ann", 30), 2000),
    (lambda: orders.checkout("ann", [9.99, 5.01]), 1500),
    (lambda: parking.leave("ann", 3), 1050),
    (lambda: renewals.renew("ann", 2), [8990, 8990]),
    (lambda: repairs.bill("ann", 1234, 20.5), (1234, 2050)),
    (lambda: shipping.ship("ann", 2.5), 650),
    (lambda: subscriptions.start_month("ann", "plus"), 1900),
    (lambda: tips.tip("ann", 80.0, 15), 1200),
]


class ShopTest(unittest.TestCase):
    def setUp(self) -> None:
        warnings.simplefilter("error")

    def test_every_charge_is_right_and_not_deprecated(self) -> None:
        for number, (buy, expected) in enumerate(CHARGES):
            with self.subTest(number):
                self.assertEqual(buy(), expected)

    def test_the_report_adds_up(self) -> None:
        donations.donate("bob", 2)
        tips.tip("bob", 10.0, 10)
        self.assertEqual(reports.charged("bob"), 300)

    def test_charging_a_battery_is_free(self) -> None:
        self.assertEqual(battery.top_up(30), 100)
        self.assertEqual(reports.charged("battery"), 0)


if __name__ == "__main__":
    unittest.main()
