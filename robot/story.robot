*** Settings ***
Documentation     A caller opens the files of a tool by the returned paths (examples/report), with the command line and over the socket.
Library           Dray.py
Library           OperatingSystem
Suite Setup       Set Up The Example
Suite Teardown    Remove Everything

*** Variables ***
${EXAMPLE}         ${CURDIR}/../examples/report
${DEVCONTAINER}    {"image": "DEBIAN", "remoteUser": "vscode", "updateRemoteUserUID": false}

*** Test Cases ***
Files Written To The Project Are Opened By Their Host Path
    [Tags]    PM-01    PM-09    PM-14
    ${i} =    Call    report    {"table": "${WS}/sales.csv"}    workspace=${WS}
    Should Contain    ${i}[stdout][text]    "/workspaces/sales/reports/chart.png"
    Should Be Equal    ${i}[output][report]    ${WS}/reports/report.md
    Should Be Equal    ${i}[output][picture]    ${WS}/reports/chart.png
    Both Files Open    ${i}[output]

Files Written Outside The Mounts Are Synced
    [Tags]    PM-09    SY-05    SY-11
    ${r} =    Dray    call    report_home    --input    {"table": "${WS}/sales.csv"}    cwd=${WS}
    Should Be Equal As Integers    ${r.code}    0
    ${out} =    Evaluate    json.loads($r.stdout)    modules=json
    Should Match Regexp    ${out}[picture]    ^${ROOT}/home/[0-9a-f-]{36}/tmp/report/chart.png$
    Both Files Open    ${out}
    ${files} =    Files Below    ${ROOT}/home
    Length Should Be    ${files}    2
    Should Be True    all(mode == '0600' for _, mode in $files.values())

A Path With Dot Dot Segments Is Refused Before The Tool Starts
    [Tags]    PM-05
    ${r} =    Dray    call    report    --input    {"table": "${WS}/../sales.csv"}    cwd=${WS}
    Should Be Equal As Integers    ${r.code}    125
    Should Contain    ${r.stderr}    path_invalid

*** Keywords ***
Set Up The Example
    ${config} =    Get File    ${EXAMPLE}/config.yaml
    Configure    ${config}\nsandbox: {root: ROOT/home}
    ${root} =    Root Directory
    VAR    ${ROOT}    ${root}    scope=SUITE
    Make Directory    ${ROOT}/home    700
    ${ws} =    Make Workspace    sales    ${DEVCONTAINER}
    VAR    ${WS}    ${ws}    scope=SUITE
    Copy Directory    ${EXAMPLE}/project/tools    ${WS}
    Copy File    ${EXAMPLE}/project/sales.csv    ${WS}
    Make Directory    ${WS}/reports    777
    ${r} =    Dray    workspace    trust    cwd=${WS}
    Should Be Equal As Integers    ${r.code}    0

Both Files Open
    [Arguments]    ${out}
    ${text} =    Read    ${out}[report]
    Should Contain    ${text}    | March | 170 |
    Should Contain    ${text}    Together 1040; the best month was June.
    ${bytes} =    Get Binary File    ${out}[picture]
    Should Be True    $bytes[:8] == b'\\x89PNG\\r\\n\\x1a\\n'
    ${size} =    Evaluate    struct.unpack('>II', $bytes[16:24])    modules=struct
    Should Be True    $size == (352, 200)
