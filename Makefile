# revenant: build, install, test.
#
#   make, make install, make installcheck    as with any PGXS extension; PG_CONFIG=... chooses the server
#   make REVENANT_DEBUG=1 ...                the debug build (debug points, movable clock), in build/debug
#   make check                               installs what is missing, then runs everything on a server of its own
#   make check SUITES="specs t:010_crash"    only these; see CONTRIBUTING.md
#   make check-debug                         every suite on servers with assertions and sanitizers, the core of it under valgrind
#   make check-matrix                        make check on PostgreSQL 17 and 18 too
#   make check-ha                            with pg_auto_failover: ten kills, three switchovers, a split network
#   make check-model                         the models of the lease protocol, with SPIN
#   make chaos MINUTES=60 SEED=17            clients, faults, and a checker; see test/chaos/README.md
#   make fuzz MINUTES=60 SEED=1              hostile input for so long; test/fuzz/README.md
#   make lint                                the static checks
#   make demo, make bench

HARNESS_GOALS = check check-debug check-matrix check-ha check-model chaos fuzz lint demo bench

ifneq ($(filter $(HARNESS_GOALS),$(MAKECMDGOALS)),)

# These need neither a server nor pg_config here: the scripts see to that.

.PHONY: $(HARNESS_GOALS)

check:
	test/harness/check $(SUITES)
check-debug:
	$(if $(KINDS),KINDS="$(KINDS)") test/harness/check-debug $(SUITES)
check-matrix:
	test/harness/matrix $(SUITES)
check-ha:
	REVENANT_KILLS=$(or $(KILLS),10) REVENANT_SWITCHES=$(or $(SWITCHES),3) REVENANT_LIMIT=$${REVENANT_LIMIT:-3600} REVENANT_JOBS=1 \
		test/harness/check ha:histories,failover,split_network
check-model:
	test/model/check $(if $(QUICK),--quick) $(MODELS)
chaos:
	test/harness/packages build chaos
	test/chaos/run --minutes $(or $(MINUTES),5) --seed $(or $(SEED),1) $(if $(KEEP),--keep)
fuzz:
	test/fuzz/fuzz $(or $(MINUTES),60) $(or $(SEED),1)
lint:
	test/harness/check lint
demo:
	demo/demo.sh
bench:
	bench/bench.sh

REST = $(filter-out $(HARNESS_GOALS),$(MAKECMDGOALS))
ifneq ($(REST),)
.PHONY: $(REST)
$(REST):
	$(MAKE) $@
endif

else ifeq ($(if $(REVENANT_DEBUG),$(REVENANT_COPY),plain),)

# The debug build is a copy of the sources in build/debug, so that no object
# of one build ever ends up in the other. (A VPATH build would find and use
# the objects that lie beside the sources.)

GOALS = $(or $(MAKECMDGOALS),all)

.PHONY: $(GOALS) debug-sources
$(GOALS): debug-sources
	$(MAKE) -C build/debug REVENANT_COPY=yes $@
debug-sources:
	mkdir -p build/debug/src
	rm -rf build/debug/src/*.[ch] build/debug/sql build/debug/test build/debug/expected
	cp -p Makefile revenant.control build/debug/
	cp -p src/*.[ch] build/debug/src/
	for folder in sql test expected; do \
		if [ -d $$folder ]; then cp -Rp $$folder build/debug/; fi; done

else

EXTENSION = revenant
# The version that is made here; sql/ has those that were released, and what leads from one to the next.
EXTVERSION := $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" revenant.control)
MODULE_big = revenant
PGFILEDESC = "revenant - leases, fence tokens, supervised tasks, entities, plans"

OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c)))

# In the order in which they are run. The debug build has its own functions, too.
SQL_PARTS = head events fence lease guard task entity message plan stat usage created
ifneq ($(REVENANT_DEBUG),)
SQL_PARTS += debug
endif

DATA = $(wildcard sql/revenant--*.sql)
DATA_built = revenant--$(EXTVERSION).sql

# What PostgreSQL's own headers do not survive is switched off; everything
# else is an error. "make WERROR=" is for compilers that we have not seen.
WERROR = -Werror
PG_CFLAGS = -Wall -Wextra $(WERROR) $(if $(findstring clang,$(CC)),-Wno-unknown-warning-option) \
	-Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers \
	-Wno-clobbered -Wno-cast-function-type -fno-semantic-interposition
PG_CPPFLAGS = -DREVENANT_VERSION='"$(EXTVERSION)"'
ifneq ($(REVENANT_DEBUG),)
PG_CPPFLAGS += -DREVENANT_DEBUG
endif

# No bitcode: our functions are not worth inlining, and it would need clang.
override with_llvm = no

# Each schedule lists its tests; the server must have revenant preloaded.
REGRESS = $(shell sed -n 's/^test: *//p' test/sql/schedule 2>/dev/null)
REGRESS_OPTS = --inputdir=test --load-extension=revenant
ISOLATION = $(shell sed -n 's/^test: *//p' test/specs/schedule 2>/dev/null)
ISOLATION_OPTS = --inputdir=test --outputdir=. --load-extension=revenant
TAP_TESTS = 1
PROVE_TESTS = $(wildcard test/t/*.pl)
export TEMP_CONFIG = $(CURDIR)/test/harness/server.conf

EXTRA_CLEAN = build $(DATA_built).tmp

PG_CONFIG = pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifeq ($(wildcard $(PGXS)),)
$(error $(PG_CONFIG) does not lead to a server with its headers: install them (Debian: postgresql-server-dev-15) or say PG_CONFIG=/path/to/pg_config. "make check" installs what it needs by itself)
endif
include $(PGXS)

$(OBJS): $(wildcard src/*.h) Makefile revenant.control

$(DATA_built): $(SQL_PARTS:%=sql/parts/%.sql) $(wildcard sql/parts/*.sql) Makefile revenant.control
	@for part in $(filter-out $(SQL_PARTS:%=sql/parts/%.sql) sql/parts/debug.sql,$(wildcard sql/parts/*.sql)); do \
		echo "$$part is not in SQL_PARTS" >&2; exit 1; done
	printf '%s\n' '\echo Use "CREATE EXTENSION revenant" to load this file. \quit' > $@.tmp
	cat $(SQL_PARTS:%=sql/parts/%.sql) >> $@.tmp
	mv $@.tmp $@

endif
