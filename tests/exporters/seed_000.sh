#!/bin/bash
# The verification steps of seed 000 as a script: seed_000.sh URL PHASE, with the phases idle, one, two, limited,
# format (steps 1 to 6) and quick (step 7, the seed's script for everything at a glance).
# Between the phases somebody starts the pods. Prints a line for each check, "PASS: ..." or "FAIL: ...", and for
# each item of the seed's checklist that the phase settles "[x] ..."; ends with 1 if anything failed.
set -u
URL=$1
PHASE=$2
FAILED=0

# check WORDS COMMAND...: the command decides.
check() {
    local words=$1
    shift
    if "$@"; then echo "PASS: $words"; else echo "FAIL: $words"; FAILED=1; fi
}

# tick ITEM: only what did not fail is ticked.
tick() { if [ "$FAILED" = 0 ]; then echo "[x] $1"; else echo "[ ] $1"; fi; }

metrics() { curl -s "$URL/metrics"; }
lines() { metrics | grep -c "^$1"; }
value() { metrics | grep "^$1" | head -1 | sed 's/.* //'; }
code() { curl -s -o /dev/null -w "%{http_code}" "$URL$1"; }
is() { [ "$1" = "$2" ]; }
at_least() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a + 0 >= b + 0) }'; }
above() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a + 0 > b + 0) }'; }
matches() { echo "$1" | grep -Eq "$2"; }

# A figure of NVML follows by a sample: ask again for a while.
until_so() {
    for _ in $(seq 600); do
        if "$@"; then return 0; fi
        sleep 0.1
    done
    return 1
}
processes_are() { is "$(value nvshare_gpu_process_count)" "$1"; }
nvml_sees_all() { ! metrics | grep '^nvshare_client_nvml_used_bytes' | grep -q ' 0$'; }
is_busy() { above "$(value nvshare_gpu_utilization_ratio)" 0; }
has_gpu() { is "$(lines nvshare_gpu_info)" 1; }
runs() { is "$(value nvshare_scheduler_running_clients)" 1; }
has_running_memory() { above "$(value nvshare_scheduler_running_memory_bytes)" 0; }
drops() { above "$(metrics | grep '^nvshare_scheduler_drop_lock_total' | awk '{ n += $NF } END { print n }')" 0; }

idle() {
    check "healthz says OK" is "$(curl -s "$URL/healthz")" OK
    check "healthz is 200" is "$(code /healthz)" 200
    tick "healthz 返回 200 OK"
    check "metrics is 200" is "$(code /metrics)" 200
    tick "metrics 返回 200 + Prometheus 格式"
    until_so has_gpu
    check "nvml_up is 1" is "$(metrics | grep '^nvshare_nvml_up')" "nvshare_nvml_up 1"
    tick '`nvshare_nvml_up` = 1'
    check "gpu_info names the GPU" matches "$(metrics | grep '^nvshare_gpu_info')" \
        '^nvshare_gpu_info\{gpu_uuid="GPU-[0-9a-f-]+",gpu_index="0",gpu_name="Tesla T4"\} 1$'
    check "total memory in plain bytes" matches "$(metrics | grep '^nvshare_gpu_memory_total_bytes')" \
        '^nvshare_gpu_memory_total_bytes\{gpu_uuid="GPU-[0-9a-f-]+",gpu_index="0"\} 17179869184$'
    tick "GPU 信息正确（UUID、名称、显存）"
    check "utilization is 0.0000" is "$(value nvshare_gpu_utilization_ratio)" 0.0000
    check "no client, not even its HELP" is "$(metrics | grep nvshare_client_info)" ""
    tick "空闲时无 client 指标"
    check "nobody runs" is "$(value nvshare_scheduler_running_clients)" 0
}

one() {
    until_so runs
    until_so is_busy
    until_so nvml_sees_all
    check "client_info has all its labels" matches "$(metrics | grep '^nvshare_client_info')" \
        '^nvshare_client_info\{namespace="default",pod="nvshare-pytorch-small-pod-1",client_id="[0-9a-f]{16}",gpu_uuid="GPU-[0-9a-f-]+",gpu_index="0",host_pid="[0-9]{2,}"\} 1$'
    check "allocated memory is not 0" above "$(value nvshare_client_managed_allocated_bytes)" 0
    tick "有负载时 client 指标出现且值合理"
    check "NVML's memory has the pid" matches "$(metrics | grep '^nvshare_client_nvml_used_bytes')" 'host_pid="[0-9]{2,}"\} [1-9][0-9]*$'
    tick "NVML per-process 显存映射成功"
    check "the GPU is busy" is_busy
    check "one runs" until_so runs
    check "its memory runs with it" above "$(value nvshare_client_managed_allocated_peak_bytes)" 0
    check "running memory is not 0" until_so has_running_memory
    check "REGISTER was counted" at_least "$(value 'nvshare_scheduler_messages_total{type="REGISTER"}')" 1
}

two() {
    until_so processes_are 2
    # As written, `grep nvshare_client_info | wc -l` counts HELP and TYPE too: 4 lines, of which 2 are clients.
    check "two clients" is "$(lines nvshare_client_info)" 2
    check "two clients and two lines about them" is "$(metrics | grep nvshare_client_info | wc -l)" 4
    check "a quota for each, 100 by default" is "$(metrics | grep '^nvshare_client_core_quota_config_percent' | grep -c ' 100$')" 2
    check "two processes on the GPU" is "$(value nvshare_gpu_process_count)" 2
}

limited() {
    check "DROP_LOCK was sent" until_so drops
    check "queues are shown" is "$(($(lines nvshare_scheduler_request_queue_clients) + $(lines nvshare_scheduler_wait_queue_clients)))" 2
    tick "调度器队列指标正确"
    before=$(value 'nvshare_scheduler_messages_total{type="REQ_LOCK"}')
    rose() { above "$(value 'nvshare_scheduler_messages_total{type="REQ_LOCK"}')" "$before"; }
    check "messages are counted on" until_so rose
    tick "消息计数器递增"
}

format() {
    check "25 families at least have HELP" at_least "$(metrics | grep -c '^# HELP')" 25
    check "and TYPE" at_least "$(metrics | grep -c '^# TYPE')" 25
    check "nothing but comments and nvshare_ lines" is "$(metrics | grep -v '^#' | grep -v '^nvshare_' | grep -v '^$')" ""
    for name in messages_total drop_lock_total client_disconnect_total; do
        check "$name is a counter" matches "$(metrics | grep '^# TYPE.*counter')" "$name counter"
    done
    check "an unknown path is 404" is "$(code /notexist)" 404
    tick "404 路径返回 404"
    check "healthz is 200" is "$(code /healthz)" 200
    check "Content-Type to the letter" is "$(curl -sI "$URL/metrics" | grep Content-Type | tr -d '\r')" \
        "Content-Type: text/plain; version=0.0.4; charset=utf-8"
    tick "Content-Type 正确"
}

# Step 7 prints what it finds under eleven headings, and judges four of them; whoever runs it reads the rest.
heading() { printf '\n=== %s ===\n' "$1"; }
show() { for name in "$@"; do metrics | grep "$name" || { echo "FAIL: no $name"; FAILED=1; }; done; }

quick() {
    heading "1. Health Check"
    check "healthz returns 200" is "$(code /healthz)" 200
    heading "2. Metrics Endpoint"
    check "metrics returns 200" is "$(code /metrics)" 200
    heading "3. NVML Status"
    show nvshare_nvml_up
    heading "4. GPU Info"
    show nvshare_gpu_info
    heading "5. GPU Memory"
    show nvshare_gpu_memory_total_bytes nvshare_gpu_memory_used_bytes
    heading "6. GPU Utilization"
    show nvshare_gpu_utilization_ratio
    heading "7. Client Info"
    echo "Active clients: $(lines nvshare_client_info)"
    heading "8. Scheduler Queues"
    show nvshare_scheduler_running_clients nvshare_scheduler_request_queue_clients nvshare_scheduler_wait_queue_clients
    heading "9. Event Counters"
    show nvshare_scheduler_messages_total nvshare_scheduler_drop_lock_total
    heading "10. Format Check"
    echo "HELP lines: $(metrics | grep -c "^# HELP"), TYPE lines: $(metrics | grep -c "^# TYPE")"
    check "No malformed lines" is "$(metrics | grep -v "^#" | grep -v "^nvshare_" | grep -v "^$" | wc -l)" 0
    heading "11. 404 Check"
    check "404 for unknown path" is "$(code /notexist)" 404
}

case $PHASE in
idle | one | two | limited | format | quick) $PHASE ;;
*)
    echo "unknown phase '$PHASE'; accepted: idle, one, two, limited, format, quick" >&2
    exit 2
    ;;
esac
exit $FAILED
