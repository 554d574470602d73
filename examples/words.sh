#!/bin/sh
# A job as a command in any language: the payload comes on standard input as JSON, and fields of it as arguments.
# What it prints is the job's log; a last line of JSON is the result. Status 75 means: not my fault, try again.
set -eu
text=$1

echo "job $JOB_ID, attempt $JOB_ATTEMPT, works in $JOB_WORKSPACE"
printf '%s\n' "$text" > "$JOB_WORKSPACE/text"
words=$(wc -w < "$JOB_WORKSPACE/text")
printf '{"words": %d}\n' "$words"
