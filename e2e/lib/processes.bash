# shellcheck shell=bash
# Starting programs in the background and stopping exactly those again. A process is known by its id and its start time,
# so that an id which the system gave to somebody else meanwhile is left alone. Sourced, never run.

# When the process $1 started, as text; nothing if there is no such process.
process_started() { ps -o lstart= -p "$1" 2>/dev/null || true; }

# start_program RUN_FOLDER NAME COMMAND...: runs it with output to RUN_FOLDER/logs/NAME.log.
start_program() {
  local run_folder=$1 name=$2
  shift 2
  mkdir -p "$run_folder/logs" "$run_folder/processes"
  (
    # Neither a closing terminal nor an interrupted script takes it down; e2e/down does.
    trap '' HUP INT
    exec "$@" >"$run_folder/logs/$name.log" 2>&1 </dev/null
  ) &
  local id=$!
  printf '%s\n%s\n' "$id" "$(process_started "$id")" >"$run_folder/processes/$name"
}

# True if the program NAME that start_program started in RUN_FOLDER is still there.
program_runs() {
  local run_folder=$1 name=$2 id started
  [[ -f $run_folder/processes/$name ]] || return 1
  { read -r id && IFS= read -r started; } <"$run_folder/processes/$name" || return 1
  [[ -n $started && $(process_started "$id") == "$started" ]]
}

# Asks the program to end, then insists.
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

# Stops all programs of RUN_FOLDER, those that depend on others first.
stop_all_programs() {
  local run_folder=$1 name
  for name in kwok kube-scheduler kube-controller-manager kube-apiserver etcd; do
    stop_program "$run_folder" "$name"
  done
}

# Prints a TCP port on loopback on which nobody listens.
free_port() {
  local port
  while true; do
    port=$((20000 + RANDOM % 12000))
    [[ " ${taken_ports[*]-} " == *" $port "* ]] && continue
    # Connecting succeeds only if somebody listens.
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      printf '%s\n' "$port"
      return
    fi
  done
}
