*** Settings ***
Documentation     The daemon, tested with the built program: start, shutdown, configuration.
Library           Dray.py
Library           Collections
Suite Setup       Configure    host: {roots: [ROOT]}
Suite Teardown    Remove Everything
Test Setup        Use State Directory    ${{ ''.join(c for c in $TEST_NAME if c.isupper()).lower() }}

*** Test Cases ***
Many Commands Start One Daemon
    ${results} =    Dray Many Times    8    audit    list
    FOR    ${r}    IN    @{results}
        Should Be Equal As Integers    ${r.code}    0    ${r.stderr}
    END
    ${pids} =    Daemons
    Length Should Be    ${pids}    1

An Idle Daemon Exits
    ${daemon} =    Start Daemon    --idle-exit    300ms
    ${code} =    Exit Code Of Daemon    ${daemon}
    Should Be Equal As Integers    ${code}    0
    ${r} =    Dray    audit    list
    Should Be Equal As Integers    ${r.code}    0

SIGTERM Lets Running Calls End
    [Tags]    OP-01
    ${daemon} =    Start Daemon
    ${root} =    Root Directory
    ${live} =    Start Dray    exec    --host    --    sh    -c    echo ready; sleep 1; echo whole; exit 6    cwd=${root}
    Line Of    ${live}
    Signal Process    SIGTERM    ${daemon.pid}
    ${r} =    End Of    ${live}
    Should Be Equal As Integers    ${r.code}    6
    Should Be Equal    ${r.stdout}    whole\n
    ${code} =    Exit Code Of Daemon    ${daemon}
    Should Be Equal As Integers    ${code}    0
    ${events} =    Events Logged By    ${daemon}
    List Should Contain Value    ${events}    draining
    Should Be Equal    ${events}[-1]    ended

A Second SIGTERM Ends The Daemon At Once
    [Tags]    OP-01
    ${daemon} =    Start Daemon
    ${root} =    Root Directory
    ${live} =    Start Dray    exec    --host    --    sh    -c    trap '' TERM; echo $$; sleep 60    cwd=${root}
    ${pid} =    Line Of    ${live}
    Signal Process    SIGTERM    ${daemon.pid}
    Wait Until Keyword Succeeds    5s    50ms    Has Logged    ${daemon}    draining
    Signal Process    SIGTERM    ${daemon.pid}
    ${code} =    Exit Code Of Daemon    ${daemon}    within=5
    Should Be Equal As Integers    ${code}    1
    Wait Until Gone    ${pid}
    ${r} =    End Of    ${live}
    Should Be Equal As Integers    ${r.code}    125

A State Directory Has One Daemon
    [Tags]    AU-04
    ${daemon} =    Start Daemon
    ${r} =    Dray    serve
    Should Be Equal As Integers    ${r.code}    1
    Should Contain    ${r.stderr}    another daemon uses the state directory
    ${r} =    Dray    audit    list
    Should Be Equal As Integers    ${r.code}    0

An Invalid Configuration Is An Error Of Every Command
    [Tags]    CF-01
    [Setup]    Configure    limits: {timeuot: 5s}
    FOR    ${command}    IN    serve    tools
        ${r} =    Dray    ${command}
        Should Be Equal As Integers    ${r.code}    2
        Should Contain    ${r.stderr}    limits.timeuot
        Should Contain    ${r.stderr}    timeout
        Should Match Regexp    ${r.stderr}    config.yaml:2:10
    END
    ${r} =    Dray    exec    --    true
    Should Be Equal As Integers    ${r.code}    125
    [Teardown]    Configure    host: {roots: [ROOT]}

Flags Override The Environment, Which Overrides The File
    [Tags]    CF-02
    [Setup]    Configure    limits: {max_timeout: 5s, timeout: 4s}
    Use State Directory    order
    Start Daemon    DRAY_LIMITS_MAX_TIMEOUT=7s
    ${a} =    Request    POST    /v1/invocations    {"tool": "exec", "input": {"argv": ["true"]}, "timeout_seconds": 8}
    Should Be Equal As Integers    ${a.status_code}    400
    Should Contain    ${a.json()}[detail]    7 seconds
    ${r} =    Dray    serve    --state    /proc/nowhere    DRAY_STATE=/tmp
    Should Contain    ${r.stderr}    /proc/nowhere
    [Teardown]    Configure    host: {roots: [ROOT]}

Only The User Can Open The State Directory
    Start Daemon
    ${mode} =    Mode Of State Directory
    Should Be Equal    ${mode}    0o700

Invalid Requests Are Refused With A Code
    [Tags]    SE-03
    Start Daemon
    Refused With    400    invalid_request    {"tool": "exec", "tool": "exec", "input": {"argv": ["true"]}}
    Refused With    400    invalid_request    {"tool": "exec", "input": {"argv": ["true"]}, "unknown": 1}
    Refused With    400    invalid_input      {"tool": "exec", "input": {}}
    Refused With    404    unknown_tool       {"tool": "no-such-tool"}
    ${a} =    Request    POST    /v1/invocations    {}    Content_Type=text/plain
    Should Be Equal As Integers    ${a.status_code}    415
    ${a} =    Request    DELETE    /v1/invocations
    Should Be Equal As Integers    ${a.status_code}    405
    ${a} =    Request    GET    /v1/no-such-endpoint
    Should Be Equal As Integers    ${a.status_code}    404
    ${a} =    Request    GET    /v1/invocations
    Should Be Empty    ${a.json()}[items]
    ${a} =    Request    GET    /healthz
    Should Be Equal As Integers    ${a.status_code}    200
    ${a} =    Request    GET    /openapi.json
    Should Start With    ${a.json()}[openapi]    3.

*** Keywords ***
Has Logged
    [Arguments]    ${daemon}    ${event}
    ${events} =    Events Logged By    ${daemon}
    List Should Contain Value    ${events}    ${event}

Refused With
    [Arguments]    ${status}    ${code}    ${body}
    ${a} =    Request    POST    /v1/invocations    ${body}
    Should Be Equal As Integers    ${a.status_code}    ${status}
    Should Be Equal    ${a.json()}[code]    ${code}
    Should Not Be Empty    ${a.json()}[detail]
