"""Make calibration.csv anew: python -m studies.coverage.calibrate (half a minute)."""

from __future__ import annotations

from pathlib import Path

from studies.coverage.calibration import write_table

if __name__ == "__main__":
    for row in write_table(Path(__file__).parent / "calibration.csv"):
        print(row)
