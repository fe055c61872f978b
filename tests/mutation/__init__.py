"""Do the tests notice a wrong program? Small faults are planted, one at a time, and the tests must fail.

    make mutate                      a random sample of 300 over the whole package and the kernel
    make mutate MODULES="theory/laws weights/sums/_kernel.c" SAMPLE=60
    make mutate MORE=--survivors     those that no test noticed, tried again with the tests of now

`python_mutants` and `kernel_mutants` make the faults, `reach` knows which tests run which functions, `trials`
runs those tests against one fault, `__main__` draws the sample and keeps the results in build/mutation: what
is there is not done again. No public tool was taken: mutmut 3 and cosmic-ray know no C, mutmut must run the
whole suite before it begins and draws no samples, cosmic-ray runs one command for every mutant.
"""
