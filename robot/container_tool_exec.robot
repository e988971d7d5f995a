*** Settings ***
Documentation     Tools in the project's devcontainer, tested with the built program through its command line and its socket.
Library           Dray.py
Library           Collections
Library           OperatingSystem
Suite Setup       Start The Workspace
Suite Teardown    Remove Everything

*** Variables ***
${DEVCONTAINER}    {"image": "DEBIAN", "remoteUser": "vscode", "updateRemoteUserUID": false,
...                "remoteEnv": {"FROM_CONFIG": "remote", "FROM_CALLER": "\${localEnv:ROBOT_LOCAL}"}, /* a comment */ }
${CONFIG}          SEPARATOR=\n
...                host: {roots: [ROOT]}
...                agent: {lease: 2s}
...                tools:
...                - {name: upper, description: Converts text to upper case., argv: [tr, a-z, A-Z],
...                \ \ \ input_schema: {type: object, required: [file], properties: {file: {type: string, format: path}}}}
...                - {name: same, argv: [cat], output: json}

*** Test Cases ***
An Untrusted Workspace Is Not Built
    [Tags]    RT-09
    ${other} =    Make Workspace    untrusted    {"image": "BUSYBOX", "initializeCommand": "touch initialized"}
    ${r} =    Dray    exec    --    true    cwd=${other}
    Failed With    ${r}    125    (workspace_untrusted)    dray workspace trust ${other}
    ${r} =    Dray    workspace    up    ${other}
    Failed With    ${r}    4    (workspace_untrusted)
    ${files} =    List Directory    ${other}
    Should Be Equal    ${files}    ${{ ['.devcontainer'] }}
    ${containers} =    Containers    ${other}
    Should Be Empty    ${containers}

A Program Runs With The User, Directory And Environment Of The Devcontainer
    [Tags]    EX-01    EX-07    CF-05
    ${r} =    Dray    exec    --    sh    -c    id -un; id -Gn; pwd; umask; echo $FROM_CONFIG $FROM_CALLER $DRAY_TEST_BASHRC    cwd=${WS}    ROBOT_LOCAL=callers
    Ended    ${r}    0    vscode\nvscode audio video builders\n/workspaces/app\n0022\nremote callers debian-bashrc\n

A Program Started In A Subdirectory Runs In That Subdirectory
    ${r} =    Dray    exec    --    pwd    cwd=${WS}/sub
    Ended    ${r}    0    /workspaces/app/sub\n
    ${r} =    Dray    exec    --cwd    sub    --    pwd    cwd=${WS}
    Ended    ${r}    0    /workspaces/app/sub\n
    ${r} =    Dray    exec    --workspace    ${WS}    --cwd    sub    --    pwd    cwd=/
    Ended    ${r}    0    /workspaces/app/sub\n

A Workspace Reached Through A Symlink Has The Same Container
    Make Symlink    ${WS}    ${WS}-link
    ${r} =    Dray    exec    --    pwd    cwd=${WS}-link/sub
    Ended    ${r}    0    /workspaces/app/sub\n
    ${r} =    Dray    exec    --workspace    ${WS}-link    --    pwd    cwd=/
    Ended    ${r}    0    /workspaces/app\n

The Exit Code Of The Tool Is Returned
    [Tags]    EX-12
    [Template]    Exit Code Is
    exit 0           0
    exit 1           1
    exit 2           2
    exit 126         126
    exit 127         127
    exit 255         255
    kill -TERM $$    143
    kill -KILL $$    137
    kill -SEGV $$    139

A Failed Start Has Its Own Exit Code
    [Tags]    EX-12
    [Template]    Start Fails
    127    (executable_not_found)    no-such-program
    127    (executable_not_found)    ./no-such-file
    126    (not_executable)          /etc/passwd
    126    (not_executable)          /tmp

An Invalid Command Line Fails With A Hint
    [Template]    Command Fails
    125    (bad_cwd)             exec    --cwd    nowhere    --    pwd
    125    (invalid_request)     exec    --timeout    0s    --    true
    125    (invalid_request)     exec    --timeout    5h    --    true
    125    (invalid_request)     exec
    125    (invalid_request)     exec    --no-such-flag    --    true
    125    (container_not_found)    exec    --container    no-such-container    --    true
    125    (invalid_request)     exec    --container    a/b    --    true
    125    (unknown_tool)        call    no-such-tool
    125    (invalid_input)       call    read_file    --input    {"pathname": "x"}
    125    (invalid_request)     call    read_file    --input    [1]
    125    (path_invalid)        call    read_file    --input    {"path": "../x"}
    125    (path_invalid)        call    read_file    --input    {"path": "/etc/passwd"}
    2      (invalid_request)     workspac
    2      (invalid_request)     audit    list    --limit    many
    5      (not_found)           audit    show    01890a5d-ac96-774b-bcce-b302099a8057
    5      (workspace_not_found)    workspace    up    /nowhere/at/all
    5      (no_devcontainer)     workspace    up    /usr

Binary Data Passes Through Stdin And Stdout
    [Tags]    EX-04
    ${bytes} =    Evaluate    bytes(range(256)) * 5000
    ${back} =    Dray Bytes    exec    --    cat    stdin=${bytes}    cwd=${WS}
    Should Be True    $back == $bytes

Streams Stay Separate And Arguments Unchanged
    [Tags]    EX-04
    ${r} =    Dray    exec    --    sh    -c    echo out; echo err >&2; printf '[%s]' "$@"    x    ${EMPTY}    a${SPACE*2}b    $HOME *    --    1.0    cwd=${WS}
    Ended    ${r}    0    out\n[][a${SPACE*2}b][$HOME *][--][1.0]
    Should Be Equal    ${r.stderr}    err\n

Output Is Live While Stdin Is Open
    ${live} =    Start Dray    exec    --    sh    -c    echo ready; read x; echo got $x; exit 4    cwd=${WS}
    ${line} =    Line Of    ${live}
    Should Be Equal    ${line}    ready
    Send To    ${live}    text\n
    ${line} =    Line Of    ${live}
    Should Be Equal    ${line}    got text
    ${r} =    End Of    ${live}
    Should Be Equal As Integers    ${r.code}    4

A Timeout Leaves No Process
    [Tags]    EX-09    EX-12
    ${r} =    Dray    exec    --timeout    700ms    --    sh    -c    trap '' TERM; setsid sleep 5811 & (sleep 5812 &); echo begun; sleep 5813    cwd=${WS}
    Failed With    ${r}    124    timed out    --timeout
    Should Be Equal    ${r.stdout}    begun\n
    Container Should Not Have    ${WS}    sleep 581

Ctrl-C Cancels
    [Tags]    EX-09    EX-12
    ${live} =    Start Dray    exec    --    sh    -c    echo ready; sleep 5821    cwd=${WS}
    Line Of    ${live}
    Signal Process    SIGINT    ${live.pid}
    ${r} =    End Of    ${live}
    Should Be Equal As Integers    ${r.code}    130
    Container Should Not Have    ${WS}    sleep 5821

Killing The Command Ends Its Call
    [Tags]    EX-09
    ${live} =    Start Dray    exec    --    sh    -c    echo ready; setsid sleep 5831 & sleep 5832    cwd=${WS}
    Line Of    ${live}
    Signal Process    SIGKILL    ${live.pid}
    Container Should Not Have    ${WS}    sleep 583    within=10

A Tool Cannot End The Agent
    ${r} =    Dray    exec    --    sh    -c    pkill -KILL -f ^/.dray-agent/; ls /proc/$(pgrep -f ^/.dray-agent/)/fd    cwd=${WS}
    Should Contain    ${r.stderr}    Operation not permitted
    Should Contain    ${r.stderr}    Permission denied
    ${r} =    Dray    exec    --    echo    again    cwd=${WS}
    Ended    ${r}    0    again\n

File Tools Use The Caller's Paths
    [Tags]    PM-01    PM-07    PM-14
    ${i} =    Call    write_file    {"path": "${WS}/sub/new.txt", "content": "text\\n"}    workspace=${WS}
    Should Be Equal    ${i}[output][path]    ${WS}/sub/new.txt
    Should Be Equal    ${i}[output][action]    created
    ${content} =    Read    ${WS}/sub/new.txt
    Should Be Equal    ${content}    text\n
    ${r} =    Dray    call    read_file    --input    {"path": "new.txt"}    cwd=${WS}/sub
    ${out} =    Evaluate    json.loads($r.stdout)    modules=json
    Should Be Equal    ${out}[path]    ${WS}/sub/new.txt
    Should Be Equal    ${out}[content]    text\n
    ${i} =    Call    list_dir    {"path": "sub"}    workspace=${WS}
    Should Be Equal    ${i}[output][path]    ${WS}/sub
    Should Be Equal    ${i}[output][entries][0][name]    new.txt

File Tools Search And Edit, And Changes Are Recorded
    [Tags]    EX-17    AU-11
    ${i} =    Call    write_file    {"path": "sub/found.txt", "content": "one\\ntwo\\n"}    workspace=${WS}
    FOR    ${where}    IN    ${EMPTY}    --host
        ${r} =    Dray    call    @{{ [$where] if $where else [] }}    glob    --input    {"pattern": "**/found.*"}    cwd=${WS}
        Ended    ${r}    0    {"paths":["${WS}/sub/found.txt"],"truncated":false}\n
        ${r} =    Dray    call    @{{ [$where] if $where else [] }}    grep    --input    {"pattern": "^t", "glob": "found.txt"}    cwd=${WS}
        Ended    ${r}    0    {"matches":[{"path":"${WS}/sub/found.txt","line":2,"text":"two"}],"truncated":false}\n
    END
    ${i} =    Call    edit_file    {"path": "${WS}/sub/found.txt", "edits": [{"old": "two", "new": "three"}]}    workspace=${WS}
    Should Be Equal    ${i}[metadata][changes][0][path]    /workspaces/app/sub/found.txt
    Should Be Equal    ${i}[metadata][changes][0][sha256_after]    ${i}[output][sha256]
    ${content} =    Read    ${WS}/sub/found.txt
    Should Be Equal    ${content}    one\nthree\n
    ${r} =    Dray    call    edit_file    --input    {"path": "found.txt", "patch": "@@ -1 +1 @@\\n-two\\n+2\\n"}    cwd=${WS}/sub
    Failed With    ${r}    125    (invalid_input)    hunk 1 of 1
    ${r} =    Dray    call    grep    --input    {"pattern": "("}    cwd=${WS}
    Failed With    ${r}    125    (invalid_input)    /input/pattern
    ${i} =    Call    stat    {"path": "sub"}    workspace=${WS}
    Should Be Equal    ${i}[output][type]    directory

Paths Are Mapped In Both Directions
    [Tags]    PM-01    PM-06    PM-11    PM-14
    ${i} =    Call    same    {"file": "${WS}/a.go", "other": "/usr/x", "list": [{"p": "${WS}"}]}    workspace=${WS}
    Should Contain    ${i}[stdout][text]    "/workspaces/app/a.go"
    Should Be Equal    ${i}[output][file]    ${WS}/a.go
    Should Be Equal    ${i}[output][list][0][p]    ${WS}
    Should Be Equal    ${i}[output][other]    /usr/x
    Should Be Equal    ${i}[metadata][container][workspace_folder]    /workspaces/app
    ${r} =    Dray    call    upper    --input    {"file": "${WS}/a.go"}    cwd=${WS}
    Ended    ${r}    0    {"FILE":"/WORKSPACES/APP/A.GO"}
    ${r} =    Dray    path    to-container    ${WS}/x y    cwd=${WS}
    Ended    ${r}    0    /workspaces/app/x y\n
    ${r} =    Dray    path    to-host    /workspaces/app/x    cwd=${WS}
    Ended    ${r}    0    ${WS}/x\n
    ${r} =    Dray    path    to-host    /workspaces/application    cwd=${WS}
    Should Contain    ${r.stderr}    not mapped

Events Are Streamed As Server-Sent Events
    ${events} =    Sse Events    /v1/invocations    {"tool": "exec", "input": {"argv": ["sh", "-c", "echo one; echo two >&2; exit 3"]}, "workspace": "${WS}"}
    ${names} =    Evaluate    [e['event'] for e in $events]
    Should Be Equal    ${names}[-1]    end
    Should Be True    {'state', 'stdout', 'stderr'} <= set($names)
    Should Be True    [e['id'] for e in $events] == list(range(1, len($events) + 1))
    Should Be Equal As Integers    ${events}[-1][data][invocation][exit_code]    3
    ${id} =    Set Variable    ${events}[-1][data][invocation][id]
    ${rest} =    Sse Events    /v1/invocations/${id}/events    Last_Event_ID=${{ str(len($events) - 1) }}
    Length Should Be    ${rest}    1
    Should Be True    $rest[0] == $events[-1]

Events Are Streamed As Lines Of JSON
    ${events} =    Ndjson Events    /v1/invocations    {"tool": "exec", "input": {"argv": ["printf", "a\\\\377"]}, "workspace": "${WS}"}
    ${bytes} =    Evaluate    b''.join(base64.b64decode(e['base64']) if 'base64' in e else e['text'].encode() for e in $events if e['event'] == 'stdout')    modules=base64
    Should Be True    $bytes == b'a\\xff'
    Should Be True    [e['seq'] for e in $events] == list(range(1, len($events) + 1))
    Should Be Equal    ${events}[-1][invocation][status]    succeeded

A Call Is Cancelled Over HTTP
    [Tags]    EX-09    EX-12
    ${id}    ${line} =    Start Call    exec    {"argv": ["sh", "-c", "echo ready; sleep 5841"]}    workspace=${WS}
    ${a} =    Request    POST    /v1/invocations/${id}/cancel
    ${i} =    Set Variable    ${a.json()}
    Should Be Equal    ${i}[reason]    cancelled
    Should Be Equal    ${i}[stdout][text]    ready\n
    Should Be Equal As Integers    ${i}[metadata][kill][survivors]    0
    Container Should Not Have    ${WS}    sleep 5841

A Caller Names The Side Of Its Paths
    [Tags]    PM-16    PM-17
    ${r} =    Dray    exec    --paths    host    --    sh    -c    cd ${WS}; pwd    cwd=${WS}
    Should Be Equal As Integers    ${r.code}    0
    Should Be Equal    ${r.stdout}    ${WS}\n
    ${r} =    Dray    exec    --paths    container    --cwd    /workspaces    --    sh    -c    pwd; cd app; pwd    cwd=${WS}
    Should Be Equal As Integers    ${r.code}    0
    Should Be Equal    ${r.stdout}    /workspaces\n/workspaces/app\n

Text Output Is Rewritten To Host Paths On Request
    [Tags]    PM-10
    ${r} =    Dray    exec    --rewrite    --    sh    -c    echo $PWD/a.go:1:2; pwd >&2    cwd=${WS}
    Should Be Equal As Integers    ${r.code}    0
    Should Be Equal    ${r.stdout}    ${WS}/a.go:1:2\n
    Should Be Equal    ${r.stderr}    ${WS}\n
    ${last} =    Last Call
    Should Be Equal As Integers    ${last}[stdout][rewritten][paths]    1
    ${r} =    Dray    audit    show    ${last}[id]    --output    stdout
    Should Be Equal    ${r.stdout}    ${WS}/a.go:1:2\n
    ${r} =    Dray    audit    show    ${last}[id]    --output    stdout    --raw
    Should Be Equal    ${r.stdout}    /workspaces/app/a.go:1:2\n
    ${r} =    Dray    exec    --no-rewrite    --    pwd    cwd=${WS}
    Ended    ${r}    0    /workspaces/app\n

Stdin Is Written While The Tool Runs
    ${id}    ${line} =    Start Call    exec    {"argv": ["sh", "-c", "echo ready; cat"]}    workspace=${WS}    stdin_open=${True}
    ${a} =    Request    POST    /v1/invocations/${id}/stdin?offset\=0    one    Content_Type=application/octet-stream
    Should Be Equal As Integers    ${a.json()}[accepted]    3
    ${a} =    Request    POST    /v1/invocations/${id}/stdin?offset\=0    one two    Content_Type=application/octet-stream
    Should Be Equal As Integers    ${a.json()}[accepted]    7
    Request    POST    /v1/invocations/${id}/stdin?eof\=1    ${EMPTY}    Content_Type=application/octet-stream
    ${a} =    Request    GET    /v1/invocations/${id}?wait_ms\=10000
    Should Be Equal    ${a.json()}[stdout][text]    ready\none two

The Audit Log Contains Every Call
    [Tags]    AU-01    AU-02    RS-02
    ${i} =    Call    exec    {"argv": ["sh", "-c", "echo seen; exit 9"]}    workspace=${WS}    context={"plan_id": "plan-1"}
    ${last} =    Last Call
    Should Be Equal    ${last}[id]    ${i}[id]
    Should Be Equal    ${last}[metadata][container]    ${i}[metadata][container]
    ${r} =    Dray    audit    show    ${i}[id]
    Should Be Equal As Integers    ${r.code}    0
    FOR    ${part}    IN    exit code${SPACE*2}9    plan-1    ${i}[metadata][container][id]    seen
        Should Contain    ${r.stdout}    ${part}
    END
    ${row} =    Audit Row    ${i}[id]
    Should Be Equal    ${row}    ${{ {'reason': 'exited', 'exit_code': 9, 'container': $i['metadata']['container']} }}

Control Sequences In Output Are Escaped By Audit Show
    Dray    exec    --    printf    \\033]0;title\\007text    cwd=${WS}
    ${last} =    Last Call
    ${r} =    Dray    audit    show    ${last}[id]
    Should Not Contain    ${r.stdout}    \x1b
    Should Contain    ${r.stdout}    text

Route Explain Shows The Route And Runs Nothing
    [Tags]    RT-03
    ${r} =    Dray    route    explain    --json    cwd=${WS}
    ${route} =    Evaluate    json.loads($r.stdout)    modules=json
    Should Be Equal    ${route}[rule]    devcontainer.nearest
    ${r} =    Dray    route    explain    --host    cwd=${WS}
    Should Contain    ${r.stdout}    call.environment

A Program Runs On The Host With --host
    [Tags]    EX-06    RT-02
    ${r} =    Dray    exec    --host    --    pwd    cwd=${WS}
    Ended    ${r}    0    ${WS}\n
    ${r} =    Dray    exec    --host    --    sh    -c    echo [$SECRET_OF_MINE]    cwd=${WS}    SECRET_OF_MINE=x
    Ended    ${r}    0    []\n
    ${r} =    Dray    exec    --host    --env    LD_PRELOAD\=x    --    true    cwd=${WS}
    Failed With    ${r}    125    (denied)
    ${r} =    Dray    exec    --host    --    pwd    cwd=/usr
    Failed With    ${r}    125    (denied)    host.roots

Workspaces Are Listed, Stopped And Started Again
    [Tags]    RT-08
    ${r} =    Dray    workspace    ls
    Should Match Regexp    ${r.stdout}    ${WS} +running +yes
    ${r} =    Dray    workspace    stop    cwd=${WS}
    Should Be Equal As Integers    ${r.code}    0
    ${r} =    Dray    workspace    ls
    Should Match Regexp    ${r.stdout}    ${WS} +stopped +yes
    ${r} =    Dray    exec    --    echo    back    cwd=${WS}
    Ended    ${r}    0    back\n

Version, Tools And Completion Are Printed
    ${r} =    Dray    version
    Should Be Equal As Integers    ${r.code}    0
    ${r} =    Dray    tools
    FOR    ${tool}    IN    exec    shell    read_file    write_file    edit_file    list_dir    stat    glob    grep    upper    same
        Should Match Regexp    ${r.stdout}    (?m)^${tool}\\b
    END
    FOR    ${shell}    IN    bash    zsh    fish
        ${r} =    Dray    completion    ${shell}
        Should Be Equal As Integers    ${r.code}    0
        Should Contain    ${r.stdout}    dray
    END

Killing The Daemon Leaves No Process, And Its Call Is Recorded As Interrupted
    [Tags]    EX-21    EX-12    AU-03
    ${live} =    Start Dray    exec    --    sh    -c    echo ready; trap '' TERM HUP; setsid sleep 5851 & sleep 5852    cwd=${WS}
    Line Of    ${live}
    ${pid} =    Background Daemon
    Signal Process    SIGKILL    ${pid}
    ${r} =    End Of    ${live}
    Failed With    ${r}    125    the connection to the daemon was lost
    Container Should Not Have    ${WS}    sleep 585    within=10
    ${last} =    Last Call
    Should Be Equal    ${last}[reason]    interrupted
    ${r} =    Dray    exec    --    echo    again    cwd=${WS}
    Ended    ${r}    0    again\n

*** Keywords ***
Start The Workspace
    Configure    ${CONFIG}
    ${ws} =    Make Workspace    app    ${DEVCONTAINER}
    VAR    ${WS}    ${ws}    scope=SUITE
    Make Directory    ${WS}/sub    777
    ${r} =    Dray    workspace    trust    cwd=${WS}
    Should Be Equal As Integers    ${r.code}    0
    Should Contain    ${r.stdout}    ROBOT_LOCAL
    ${r} =    Dray    workspace    up    cwd=${WS}
    Should Be Equal As Integers    ${r.code}    0

Ended
    [Arguments]    ${r}    ${code}    ${stdout}
    Should Be Equal    ${r.stdout}    ${stdout}
    Should Be Equal As Integers    ${r.code}    ${code}

Failed With
    [Arguments]    ${r}    ${code}    @{parts}
    Should Be Equal As Integers    ${r.code}    ${code}
    FOR    ${part}    IN    @{parts}
        Should Contain    ${r.stderr}    ${part}
    END

Exit Code Is
    [Arguments]    ${script}    ${code}
    ${r} =    Dray    exec    --    sh    -c    echo out; ${script}    cwd=${WS}
    Ended    ${r}    ${code}    out\n

Start Fails
    [Arguments]    ${code}    ${error}    @{argv}
    ${r} =    Dray    exec    --    @{argv}    cwd=${WS}
    Failed With    ${r}    ${code}    ${error}    hint:
    Should Be Empty    ${r.stdout}

Command Fails
    [Arguments]    ${code}    ${error}    @{args}
    ${r} =    Dray    @{args}    cwd=${WS}
    Failed With    ${r}    ${code}    ${error}    hint:
    Should Be Empty    ${r.stdout}
