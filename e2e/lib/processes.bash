# shellcheck shell=bash
# Starts programs in the background and stops them again. A process is identified by its id and start time, so that a reused id
# is not killed. Sourced, never run.

# The start time of process $1; empty if there is no such process.
process_started() { ps -o lstart= -p "$1" 2>/dev/null || true; }

# start_program RUN_FOLDER NAME COMMAND...: runs it with output to RUN_FOLDER/logs/NAME.log.
start_program() {
  local run_folder=$1 name=$2
  shift 2
  mkdir -p "$run_folder/logs" "$run_folder/processes"
  (
    # Ignores hangup and interrupt of the script; e2e/down stops the program.
    trap '' HUP INT
    exec "$@" >"$run_folder/logs/$name.log" 2>&1 </dev/null
  ) &
  local id=$!
  printf '%s\n%s\n' "$id" "$(process_started "$id")" >"$run_folder/processes/$name"
}

# Whether the program NAME that start_program started in RUN_FOLDER still runs.
program_runs() {
  local run_folder=$1 name=$2 id started
  [[ -f $run_folder/processes/$name ]] || return 1
  { read -r id && IFS= read -r started; } <"$run_folder/processes/$name" || return 1
  [[ -n $started && $(process_started "$id") == "$started" ]]
}

# Sends SIGTERM, and SIGKILL after 5 s.
stop_program() {
  local run_folder=$1 name=$2 id tenth
  if program_runs "$run_folder" "$name"; then
    read -r id <"$run_folder/processes/$name"
    kill "$id" 2>/dev/null || true
    for ((tenth = 0; tenth < 50; tenth++)); do
      program_runs "$run_folder" "$name" || break
      sleep 0.1
    done
    program_runs "$run_folder" "$name" && kill -KILL "$id" 2>/dev/null
  fi
  rm -f "$run_folder/processes/$name"
}

# Stops all programs of RUN_FOLDER in the order of their dependencies.
stop_all_programs() {
  local run_folder=$1 name
  for name in kwok kube-scheduler kube-controller-manager kube-apiserver etcd; do
    stop_program "$run_folder" "$name"
  done
}

# Prints an unused TCP port on loopback.
free_port() {
  local port
  while true; do
    port=$((20000 + RANDOM % 12000))
    [[ " ${taken_ports[*]-} " == *" $port "* ]] && continue
    # A connection succeeds only if a program listens.
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      printf '%s\n' "$port"
      return
    fi
  done
}
