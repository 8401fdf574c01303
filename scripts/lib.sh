# What scripts/test is made of: installing programs, budgets, jobs side by side, and a busy machine. Sourced, not run.

# need NAME…: installs programs that tests use, each given as NAME or NAME:PACKAGE of Debian.
need() {
  local program packages=()
  for program in "$@"; do command -v "${program%%:*}" >/dev/null || packages+=("${program##*:}"); done
  [ ${#packages[@]} -eq 0 ] && return
  echo "scripts/test: installing ${packages[*]}" >&2
  apt-get install -y -q --no-install-recommends "${packages[@]}" >&2 || { apt-get update -q >&2 && apt-get install -y -q --no-install-recommends "${packages[@]}" >&2; }
}

# tool CRATE VERSION: builds a program that checks things into target/tools, unless it is there, and puts it before PATH.
tool() {
  local root="${CARGO_TARGET_DIR:-$PWD/target}/tools"
  export PATH="$root/bin:$PATH"
  "$root/bin/$1" --version 2>/dev/null | grep -qF " $2" || cargo install --locked --quiet "$1@$2" --root "$root"
}

# ignored CHECK REASON: says that a check was not run. That is a failure where LEASEHOLD_REQUIRE names it.
ignored() {
  echo "  ignored: $1: $2" >&2
  case ",${LEASEHOLD_REQUIRE:-}," in *",$1,"*) echo "scripts/test: LEASEHOLD_REQUIRE names $1" >&2; return 1 ;; esac
}

# within_budget PART [ARGUMENT…]: runs a part in a process of its own, and ends it when its budget is used up.
within_budget() {
  local part="$1" seconds since=$SECONDS code=0 running
  seconds="$(awk -v seconds="${budget[$1]}" -v factor="${LEASEHOLD_BUDGET_FACTOR:-1}" 'BEGIN { printf "%d", seconds * factor }')"
  echo "=== $part" >&2
  timeout --kill-after=20 "$seconds" "$0" --part "$@" &
  running=$!
  trap 'kill "$running" 2>/dev/null; exit 130' INT TERM
  wait "$running" || code=$?
  trap - INT TERM
  echo "=== $part: $((SECONDS - since)) s of $seconds s" >&2
  [ "$code" -eq 124 ] && echo "scripts/test: $part is over its budget of $seconds s; where the machine is slow, set LEASEHOLD_BUDGET_FACTOR=2" >&2
  [ "$code" -eq 0 ] || exit "$code"
}

# side_by_side "NAME: COMMAND"…: runs commands, some at a time. Each says when it is done; of one that fails, all that it printed is shown.
side_by_side() {
  local most="${LEASEHOLD_AT_A_TIME:-4}" logs job name since total=$# done=0 failed=() pid ended code
  local -A running=() began=()
  logs="$(mktemp -d)"
  while [ $# -gt 0 ] || [ ${#running[@]} -gt 0 ]; do
    while [ $# -gt 0 ] && [ ${#running[@]} -lt "$most" ]; do
      job="$1" name="${1%%: *}"
      shift
      eval "${job#*: }" >"$logs/$name" 2>&1 </dev/null &
      running[$!]="$name" began[$!]=$SECONDS
    done
    code=0
    wait -n -p ended "${!running[@]}" || code=$?
    name="${running[$ended]}" done=$((done + 1))
    unset "running[$ended]"
    if [ "$code" -eq 0 ]; then
      echo "  ok      $name, $((SECONDS - ${began[$ended]})) s ($done of $total)" >&2
    else
      echo "  FAILED  $name, $((SECONDS - ${began[$ended]})) s ($done of $total)" >&2
      failed+=("$name")
    fi
  done
  for name in "${failed[@]}"; do
    echo "--- $name" >&2
    cat "$logs/$name" >&2
  done
  rm -rf "$logs"
  if [ ${#failed[@]} -gt 0 ]; then printf 'scripts/test: failed: %s\n' "${failed[@]}" >&2; return 1; fi
}

# under_load RUNS [TARGET [FILTER]]: runs tests of testing/load.txt so often beside four busy loops, and prints how often each held.
under_load() {
  local runs="$1" target filter loops=() program results logs round
  shift
  results="$(mktemp)" logs="$(mktemp -d)"
  cargo build --workspace --all-targets --locked
  trap 'kill "${loops[@]}" 2>/dev/null; rm -rf "$results"' EXIT
  for _ in 1 2 3 4; do (while :; do :; done) & loops+=($!); done
  for ((round = 1; round <= runs; round++)); do
    while read -r target filter <&3; do
      case "$target" in ''|'#'*) continue ;; esac
      if [ $# -gt 0 ] && [ "$1" != "$target" ]; then continue; fi
      if [ $# -gt 1 ]; then [[ "$filter" == *"$2"* ]] || continue; fi
      program="cargo test --workspace --locked --test $target -- $filter"
      [ "$target" = lib ] && program="cargo test --workspace --locked --lib -- $filter"
      $program >"$logs/now" 2>&1 || cp "$logs/now" "$logs/$round-$target-${filter//[^a-z_]/-}"
      sed -n "s/^test \(.*[^ ]\) *\.\.\. \(ok\|FAILED\)\( .*\)\{0,1\}$/$target \1\t\2/p" "$logs/now" >>"$results"
    done 3<testing/load.txt
    echo "  round $round of $runs" >&2
  done
  kill "${loops[@]}" 2>/dev/null || true
  awk -F'\t' '{ all[$1]++ } $2 == "ok" { held[$1]++ } END {
    for (test in all) { printf "%5d of %-5d %s\n", held[test], all[test], test; if (held[test] < all[test]) bad = 1 }
    exit bad
  }' "$results" | sort -k4 || { echo "scripts/test: what failed has printed: $logs" >&2; return 1; }
}
