# Weighted quantiles by R's survey package: the oracle for the target of weighted runs.
#
#   apt install r-cran-survey
#   Rscript studies/survey/svyquantile.R > studies/survey/svyquantile.json
#
# qrule "math" (the default) is the inverse of the weighted distribution function: the smallest value at which the
# weights up to it reach the level's share of all weights.
suppressPackageStartupMessages(library(survey))

levels <- c(0.05, 0.1, 0.25, 0.31, 0.5, 0.75, 0.8, 0.9, 0.99)
set.seed(20180401)
samples <- list(
  continuous = data.frame(x = round(rnorm(61, 50, 10), 6), w = round(exp(runif(61, log(0.2), log(8))), 4)),
  heaped = data.frame(x = 1000 * sample(20:80, 83, replace = TRUE), w = round(rlnorm(83, 0, 0.6), 3)),
  ages = data.frame(x = sample(18:67, 120, replace = TRUE), w = sample(c(0.5, 1, 1.5, 3), 120, replace = TRUE)),
  alike = data.frame(x = round(rlnorm(40, 10, 0.8), 2), w = rep(2.5, 40)),
  some_zero = data.frame(x = round(rt(47, 3), 5), w = ifelse(runif(47) < 0.3, 0, round(runif(47, 0.2, 5), 3)))
)
numbers <- function(values) paste0("[", paste(format(values, digits = 15, trim = TRUE, scientific = FALSE), collapse = ", "), "]")
made <- sprintf("R %s.%s, survey %s, svyquantile(qrule = \\\"math\\\")", R.version$major, R.version$minor, packageVersion("survey"))
cat("{\n")
cat(sprintf("  \"made_by\": \"%s\",\n  \"levels\": %s,\n  \"samples\": {\n", made, numbers(levels)))
for (name in names(samples)) {
  sample <- samples[[name]]
  design <- svydesign(ids = ~1, weights = ~w, data = sample)
  found <- svyquantile(~x, design, quantiles = levels, qrule = "math", ci = FALSE, se = FALSE)
  answers <- as.numeric(unlist(found$x))
  cat(sprintf("    \"%s\": {\n      \"x\": %s,\n      \"w\": %s,\n      \"quantiles\": %s\n    }%s\n", name,
    numbers(sample$x), numbers(sample$w), numbers(answers), if (name == tail(names(samples), 1)) "" else ","))
}
cat("  }\n}\n")
