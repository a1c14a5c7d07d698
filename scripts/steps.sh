# Sourced by what runs several steps one after the other: each is named, timed, and ends the run if it fails.

step() {
    local name=$1 started=$SECONDS
    shift
    printf '\n== %s ==\n' "$name"
    "$@"
    printf '== %s: %d s ==\n' "$name" $((SECONDS - started))
}
