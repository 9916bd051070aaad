# A thin front for daily work; the real build is CMake (CMakePresets.json). PRESET=debug|asan|tsan|cpu|cuda for others.
PRESET ?= release
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
BUILD := build/$(PRESET)

.PHONY: build test bench lint format docs install clean help

build: ## compile into build/$(PRESET); the binary is build/$(PRESET)/hadal
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET) -j $(JOBS)

test: build ## all tests that need no GPU
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

bench: build ## what this machine can do, and what the kernels make of it
	$(BUILD)/hadal bench roof
	$(BUILD)/hadal bench kernel

lint: ## clang-format and clang-tidy over every file
	scripts/lint.sh --no-packages --all

docs: build ## bring docs/command-line.md up to date with the help texts
	scripts/check-cli-docs.sh $(BUILD)/hadal --update

format: ## rewrite sources into the project's format
	scripts/lint.sh --no-packages --format-only --fix

install: build ## into $(DESTDIR)$(PREFIX): bin/hadal, share/hadal, share/doc/hadal
	cmake --install $(BUILD) --strip --prefix $(PREFIX)

clean: ## remove build/$(PRESET)
	rm -rf $(BUILD)

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12
