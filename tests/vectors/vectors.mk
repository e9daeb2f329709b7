# SPDX-License-Identifier: Apache-2.0
# The golden vectors of tests/vectors/stages: through the command line (in make test), and how they are made.

vectors-check: $(BUILD)/terse
	@python3 tests/tools/check_vectors.py $(BUILD)/terse
test-built: vectors-check

# Writes tests/vectors/stages anew; packages of its own, which no test needs.
vectors:
	@python3 -c 'import numpy, zstandard' 2>/dev/null || { echo "apt-get install python3-numpy python3-zstandard" >&2; exit 1; }
	python3 tests/tools/make_vectors.py

.PHONY: vectors vectors-check
