"""The reproduction of one paper: its tables and figures computed again, beside the printed values.

Cai, Hu and Wu, "Federated Learning of Quantile Inference under Local Differential Privacy". `published` has the designs
and the printed values, `tables`, `salary` and `figures` the paper's own tables and figures, `beyond_tables` three small
experiments that the paper does not have, `page` and `differences` what `privatile report` makes of a folder of results;
`reproduce` runs them for the command `privatile paper`.
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
