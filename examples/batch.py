"""Many jobs at once: handed in as fast as they are taken, their results in the order of the payloads."""

from connect import client

PAYLOADS = [{"to": number, "seconds": 0} for number in range(1, 21)]


def main() -> None:
    with client() as herd:
        for payload, result in zip(PAYLOADS, herd.map("count", PAYLOADS, patience=60), strict=True):
            print(f"the sum of the numbers to {payload['to']} is {result['sum']}")


if __name__ == "__main__":
    main()
