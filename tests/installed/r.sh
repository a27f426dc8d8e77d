# driven: mclapply, a linear model
# packages: r-base-core
Rscript -e 'library(parallel); x <- unlist(mclapply(1:4, function(i) sum(rnorm(1000)*0+i), mc.cores=2)); stopifnot(sum(x)==10000); f <- lm(dist~speed, cars); stopifnot(abs(coef(f)[2]-3.93)<0.01)'
