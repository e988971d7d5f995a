*** Settings ***
Documentation     Synced files, tested with the built program: `dray sync`, POST /v1/sync, the sandbox root and the audit log.
Library           Dray.py
Library           Collections
Library           OperatingSystem
Suite Setup       Start The Workspace
Suite Teardown    Remove Everything
Test Setup        Empty The Sandbox Root

*** Variables ***
${DEVCONTAINER}    {"image": "DEBIAN", "remoteUser": "vscode", "updateRemoteUserUID": false}
${CONFIG}          SEPARATOR=\n
...                host: {roots: [ROOT]}
...                sandbox: {root: ROOT/home, max_file: 1MiB}

*** Test Cases ***
A Directory Is Synced With The Command Line
    [Tags]    SY-01    SY-05    SY-10
    In The Container    mkdir -p /tmp/one/sub && cd /tmp/one && echo x >sub/x && printf 'a\\000b' >bytes && chmod 777 bytes
    ${r} =    Dray    sync    --dry-run    /tmp/one    cwd=${WS}
    Ended    ${r}    0
    Should Match Regexp    ${r.stdout}    (?m)^\\+ +0600 +3 B +[0-9a-f]{12} +${HOME}/one/bytes$
    Should Contain    ${r.stderr}    dray: 2 files, 5 B: 2 created; nothing was written
    Directory Should Be Empty    ${HOME}
    ${r} =    Dray    sync    /tmp/one    cwd=${WS}
    Ended    ${r}    0
    Should Match Regexp    ${r.stdout}    (?m)^created +0600 +3 B +${HOME}/one/bytes$
    ${files} =    Files Below    ${HOME}
    Should Be Equal    ${files}    ${{ {'one/bytes': (b'a\0b', '0600'), 'one/sub/x': (b'x\n', '0600')} }}
    ${r} =    Dray    sync    --json    /tmp/one    cwd=${WS}
    Ended    ${r}    0
    ${manifest} =    Evaluate    json.loads($r.stdout)
    Should Be Equal    ${{ [f['action'] for f in $manifest['files']] }}    ${{ ['unchanged', 'unchanged'] }}
    Should Be Equal    ${{ sorted($manifest) }}    ${{ ['bytes', 'files', 'id', 'refused'] }}

One Refused Path Prevents The Whole Sync
    [Tags]    SY-02    SY-06
    In The Container    mkdir -p /tmp/two && cd /tmp/two && echo good >good && ln -s /etc/passwd link
    ${r} =    Dray    sync    /tmp/two    cwd=${WS}
    Exited With    ${r}    1    (sync_refused)    /tmp/two/link    hint:
    Should Be Empty    ${r.stdout}
    Directory Should Be Empty    ${HOME}
    ${r} =    Dray    sync    --skip-refused    /tmp/two    cwd=${WS}
    Exited With    ${r}    0    dray: refused /tmp/two/link:    1 created, 1 refused
    ${files} =    Files Below    ${HOME}
    Should Be Equal    ${files}    ${{ {'two/good': (b'good\n', '0600')} }}

Files Are Synced Over HTTP
    [Tags]    SY-09    SY-10    AU-11
    In The Container    mkdir -p /tmp/three && echo 3 >/tmp/three/x
    ${a} =    Request    POST    /v1/sync    ${{ {'workspace': $WS, 'paths': ['/tmp/three'], 'destination': 'a/b', 'context': {'plan_id': 'robot'}} }}
    Should Be Equal As Integers    ${a.status_code}    200
    VAR    ${sync}    ${a.json()}
    Should Be Equal    ${sync}[files][0][path]    ${HOME}/a/b/three/x
    Should Be Equal    ${sync}[files][0][mode]    0600
    Should Be Equal    ${sync}[bytes]    ${2}
    Should Be Empty    ${sync}[refused]
    ${row} =    Audit Row    ${sync}[id]
    Should Be Equal    ${row}[reason]    exited
    ${a} =    Request    GET    /v1/audit/files?plan_id\=robot
    Should Be Equal    ${{ [(c['invocation'], c['action'], c['path']) for c in $a.json()['items']] }}    ${{ [($sync['id'], 'created', $HOME + '/a/b/three/x')] }}
    In The Container    head -c 1048577 /dev/zero >/tmp/three/large
    ${a} =    Request    POST    /v1/sync    ${{ {'workspace': $WS, 'paths': ['/tmp/three']} }}
    Should Be Equal As Integers    ${a.status_code}    422
    Should Be Equal    ${{ $a.json()['code'] }}    limit_exceeded
    ${files} =    Files Below    ${HOME}
    Should Be Equal    ${files}    ${{ {'a/b/three/x': (b'3\n', '0600')} }}

Declared Outputs Of A Call Are Synced
    [Tags]    SY-11
    ${call} =    Call    exec    {"argv": ["sh", "-c", "mkdir -p /tmp/four; echo 4 >/tmp/four/x; exit 9"]}    workspace=${WS}    sync=["/tmp/four"]
    Should Be Equal As Integers    ${call}[exit_code]    9
    Should Be Equal    ${call}[metadata][sync][state]    complete
    ${files} =    Files Below    ${HOME}
    Should Be Equal    ${files}    ${{ {$call['id'] + '/tmp/four/x': (b'4\n', '0600')} }}

A Failed Sync Has An Exit Code
    [Template]    Sync Fails With
    2    (invalid_request)      sync
    2    (invalid_request)      sync    --container    x    relative
    5    (container_not_found)  sync    --container    no-such-file    /tmp
    1    (sync_refused)         sync    /etc/passwd
    1    (sync_refused)         sync    /tmp/no-such-file
    5    (no_devcontainer)      sync    --workspace    /    /tmp

A Sandbox Root That Other Users Can Open Stops The Daemon
    [Tags]    SY-04
    ${root} =    Root Directory
    Make Directory    ${root}/open    755
    ${r} =    Dray    serve    --state    ${root}/another    DRAY_SANDBOX_ROOT=${root}/open
    Exited With    ${r}    2    sandbox.root    chmod 700
    ${r} =    Dray    config    check    DRAY_SANDBOX_ROOT=/
    Exited With    ${r}    2    sandbox.root

*** Keywords ***
Start The Workspace
    Configure    ${CONFIG}
    ${root} =    Root Directory
    VAR    ${HOME}    ${root}/home    scope=SUITE
    Make Directory    ${HOME}    700
    ${ws} =    Make Workspace    app    ${DEVCONTAINER}
    VAR    ${WS}    ${ws}    scope=SUITE
    ${r} =    Dray    workspace    trust    cwd=${WS}
    Should Be Equal As Integers    ${r.code}    0
    ${r} =    Dray    workspace    up    cwd=${WS}
    Should Be Equal As Integers    ${r.code}    0

Empty The Sandbox Root
    Empty Directory    ${HOME}

In The Container
    [Arguments]    ${script}
    ${r} =    Dray    exec    --    sh    -c    ${script}    cwd=${WS}
    Should Be Equal As Integers    ${r.code}    0

Ended
    [Arguments]    ${r}    ${code}
    Should Be Equal As Integers    ${r.code}    ${code}    ${r.stderr}

Exited With
    [Arguments]    ${r}    ${code}    @{parts}
    Should Be Equal As Integers    ${r.code}    ${code}    ${r.stderr}
    FOR    ${part}    IN    @{parts}
        Should Contain    ${r.stderr}    ${part}
    END

Sync Fails With
    [Arguments]    ${code}    ${error}    @{args}
    ${r} =    Dray    @{args}    cwd=${WS}
    Exited With    ${r}    ${code}    ${error}    hint:
    Should Be Empty    ${r.stdout}
