"""The reproduction of one paper: its tables and figures computed again, beside the printed values.

Cai, Hu and Wu, "Federated Learning of Quantile Inference under Local Differential Privacy". `tables` has the
designs, the printed values, Tables 1 to 4, two figures and three small experiments that the paper does not have,
`salary` Table 5. `reproduce` runs them for the command `privatile paper`, and makes what `privatile report` shows.
"""

from privatile.paper.tables import (
    TABLES,
    Comparison,
    compare,
    paper_experiment,
    published_salary,
    published_tables,
    verdict,
)

__all__ = ["TABLES", "Comparison", "compare", "paper_experiment", "published_salary", "published_tables", "verdict"]
