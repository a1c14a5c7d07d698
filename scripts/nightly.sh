#!/usr/bin/env bash
# Everything whole, one after the other: what .ci/run leaves out for its time is in here.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/steps.sh

step "tests" make test
step "style, types, import contracts" make check
step "the site" make site-check
step "beside other engines, whole" make interop
step "the long tests, whole" make soak
step "every PySpark" make matrix
step "the proof, whole" make prove
step "what is published, with Spark" make dist
step "guarantees" make guarantees
step "the demo on Kafka" make kafka-demo
printf '\nAll of it passed in %d minutes.\n' $((SECONDS / 60))
