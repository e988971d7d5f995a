Feature: A tool runs in the project's devcontainer
  An agent calls a tool with host paths. The tool runs in the container like with `devcontainer exec`, its output has host paths, its end has one
  reason, and the audit log records it.

  Background:
    Given the workspace {workspace}

  Rule: Basic execution

    @EX-01 @EX-07 @CF-05 @RS-02
    Scenario: A program runs with the user, directory and environment of the devcontainer
      When I call the tool exec with {"argv": ["sh", "-c", "id -un; id -Gn; pwd; umask; echo $FROM_CONFIG $FROM_CONTAINER $DRAY_TEST_BASHRC"]}
      Then the call succeeds
      And stdout is
        """
        vscode
        vscode audio video builders
        /workspaces/app
        0022
        remote contained debian-bashrc

        """
      And /metadata/container/user is "vscode"
      And /metadata/container/workspace_folder is "/workspaces/app"
      And /metadata/container/transport is "agent"
      And /metadata/container/exit_code is 0
      And /metadata/container/id matches "^[0-9a-f]{64}$"
      And /metadata/container/image_digest matches "^sha256:[0-9a-f]{64}$"
      And /metadata/container/config_hash matches "^sha256:[0-9a-f]{64}$"
      And /metadata/container/engine matches "^docker "
      And /metadata/container/exec_ms is above 0

    @EX-04
    Scenario: Arguments arrive byte for byte without a shell
      When I call the tool exec with {"argv": ["printf", "[%s]", "", " a  b ", "$HOME `id` $(id)", "*", "1.0", "0x10", "new\nline", "ä\u2028😀", "--help", "\\", "'\""]}
      Then stdout is "[][ a  b ][$HOME `id` $(id)][*][1.0][0x10][new\nline][ä\u2028😀][--help][\\]['\"]"

    @EX-03
    Scenario: A command tool gets its input as JSON on stdin, never as arguments
      When I call the tool seen with {"text": "$(id) 'quoted' ü\n", "number": 12345678901234567890, "deep": {"list": [1, [true, null]]}}
      Then the call succeeds
      And /output/stdin is {"text": "$(id) 'quoted' ü\n", "number": 12345678901234567890, "deep": {"list": [1, [true, null]]}}
      And /output/arguments is ["--fixed"]

    @EX-03
    Scenario Outline: An input is one JSON object
      When I send the call request {"tool": "seen", "input": <input>, "workspace": "{workspace}"}
      Then the request fails with status 400 and code invalid_request

      Examples:
        | input  |
        | [1]    |
        | "text" |
        | 5      |
        | null   |

    Scenario: A shell command differs from a program
      When I call the tool shell with {"command": "echo one | tr a-z A-Z; exit 4"}
      Then the call fails with reason exited
      And /exit_code is 4
      And stdout is "ONE\n"

    Scenario: Binary stdin is complete, and stdout and stderr are separate
      Given the call request includes {"stdin_base64": "AAH/Cv4ADQ=="}
      When I call the tool exec with {"argv": ["sh", "-c", "od -An -tx1; echo problem >&2"]}
      Then stdout is " 00 01 ff 0a fe 00 0d\n"
      And stderr is "problem\n"
      And the call succeeds

    Scenario: Two concurrent calls in a container do not affect each other
      Given the call request includes {"env": {"ONLY_HERE": "1"}, "cwd": "sub"}
      When I call the tool exec with {"argv": ["sh", "-c", "echo $ONLY_HERE; pwd; cd /; export X=1"]}
      Then stdout is "1\n/workspaces/app/sub\n"
      Given a new call request
      When I call the tool exec with {"argv": ["sh", "-c", "echo [$ONLY_HERE] [$X]; pwd"]}
      Then stdout is "[] []\n/workspaces/app\n"

  Rule: Path mapping

    @PM-01 @PM-14
    Scenario: Paths are mapped both ways by the container's real mounts, on whole segments
      When I map these paths to_container
        | {workspace}          | /workspaces/app          |
        | {workspace}/a b/ü.go | /workspaces/app/a b/ü.go |
        | {data}/set           | /data/set                |
        | {data}               | /data                    |
        | {data}evil/set       |                          |
        | /etc/hosts           |                          |
      And I map these paths to_host
        | /workspaces/app      | {workspace}     |
        | /workspaces/app/a.go | {workspace}/a.go |
        | /data/x/y            | {data}/x/y      |
        | /database            |                 |
        | /tmp/x               |                 |

    @PM-04
    Scenario: If mounts overlap, the longest one applies
      When I map these paths to_container
        | {workspace}/inner/x | /inner/x              |
        | {workspace}/inner2  | /workspaces/app/inner2 |
      And I map these paths to_host
        | /inner/x | {workspace}/inner/x |

    @PM-07 @PM-09
    Scenario: Marked paths are mapped at any depth, in input and output; keys are not
      When I call the tool marked with {"file": "{workspace}/a.go", "files": [{"at": "{workspace}/b.go"}, {"at": "{data}/c"}], "note": "{workspace}/a.go"}
      Then the call succeeds
      And stdout contains "/workspaces/app/b.go"
      And stdout contains "\"note\":\"{workspace}/a.go\""
      And /output/file is "{workspace}/a.go"
      And /output/files/1/at is "{data}/c"
      And /metadata/mapping/mapped contains {"pointer": "/input/file", "from": "{workspace}/a.go", "to": "/workspaces/app/a.go"}
      And /metadata/mapping/mapped contains {"pointer": "/input/files/1/at", "from": "{data}/c", "to": "/data/c"}
      And /metadata/mapping/mapped contains {"pointer": "/output/files/0/at", "from": "/workspaces/app/b.go", "to": "{workspace}/b.go"}

    @PM-07 @PM-09
    Scenario: Without marks, whole strings below a root are mapped; prose and keys are not
      When I call the tool seen with {"{workspace}/key": "{workspace}/a.go", "prose": "{workspace}/a.go is the file", "address": "http://x{workspace}/a"}
      Then /output/stdin is {"{workspace}/key": "{workspace}/a.go", "prose": "{workspace}/a.go is the file", "address": "http://x{workspace}/a"}
      And stdout contains "\"{workspace}/key\": \"/workspaces/app/a.go\""
      And stdout contains "\"prose\": \"{workspace}/a.go is the file\""

    @PM-06
    Scenario: A path outside every root is not mapped and is listed
      When I call the tool marked with {"file": "/usr/share/x//y", "files": [], "note": ""}
      Then /output/file is "/usr/share/x//y"
      And /metadata/mapping/unmapped/0/pointer is "/input/file"
      And /metadata/mapping/unmapped/0/path is "/usr/share/x//y"

    @PM-05
    Scenario Outline: A path with .. or NUL in an input is refused before anything starts
      When I call the tool marked with {"file": "<path>", "files": [], "note": "x"}
      Then the call fails with reason invalid
      And the error code is path_invalid
      And no process was started

      Examples:
        | path                     |
        | {workspace}/../etc       |
        | {workspace}/a/..         |
        | {workspace}/nul\u0000    |

    @PM-05
    Scenario: An invalid path in an output is not mapped, with a mapping error
      When I call the tool odd with {}
      Then the call succeeds
      And /output/file is "/workspaces/app/../up"
      And /metadata/mapping/errors/0/pointer is "/output/file"

    @PM-08
    Scenario: An input that is too deep is refused before anything starts
      When I call the tool seen with an input of 65 nested levels
      Then the call fails with reason invalid
      And the error code is path_too_deep
      And no process was started

    @PM-08
    Scenario: An input of the greatest depth is mapped
      When I call the tool seen with an input of 64 nested levels
      Then the call succeeds
      And stdout contains "/workspaces/app/deepest"

    @PM-11
    Scenario: Metadata keeps the container's paths
      When I call the tool seen with {"a": "{workspace}"}
      Then /metadata/container/workspace_folder is "/workspaces/app"
      And /output/stdin/a is "{workspace}"

    @PM-10
    Scenario: Text output is not rewritten by default
      When I call the tool exec with {"argv": ["sh", "-c", "echo /workspaces/app/a.go:1; pwd"]}
      Then stdout is "/workspaces/app/a.go:1\n/workspaces/app\n"
      And /stdout/rewritten is absent

    @PM-10
    Scenario: Text output is rewritten on request, and the raw output is captured too
      Given the call request includes {"rewrite_text": true}
      When I call the tool exec with {"argv": ["sh", "-c", "pwd; printf /workspaces/ap; sleep 0.1; printf 'p/a b.go:1:2: /data/x /database '; echo \"(file://$PWD/a%20b.go)\"; echo $PWD/../up $PWD-2 >&2"]}
      Then the call succeeds
      And stdout is "{workspace}\n{workspace}/a b.go:1:2: {data}/x /database (file://{workspace}/a%20b.go)\n"
      And stderr is "/workspaces/app/../up /workspaces/app-2\n"
      And /stdout/rewritten/paths is 4
      And /stderr/rewritten/paths is 0
      And the captured stdout from byte 0 is "/workspaces/app\n/workspaces/app/a b.go:1:2: /data/x /database (file:///workspaces/app/a%20b.go)\n"
      And the rewritten stdout from byte 0 is "{workspace}\n{workspace}/a b.go:1:2: {data}/x /database (file://{workspace}/a%20b.go)\n"
      And the rewritten stderr from byte 16 is "../up /workspaces/app-2\n"

    @PM-16
    Scenario Outline: A caller with host paths uses what it reads
      Given the call request includes {"paths": "host"}
      When I call the tool <tool> with <input>
      Then the call succeeds
      And stdout is "<stdout>"

      Examples:
        | tool  | input                                                                                                          | stdout                       |
        | shell | {"command": "cd sub; mkdir -p paths; echo $PWD/paths >{workspace}/sub/paths/a.txt; cat {workspace}/sub/paths/a.txt"}               | {workspace}/sub/paths\\n           |
        | exec  | {"argv": ["sh", "-c", "cat $1", "sh", "{workspace}/sub/paths/a.txt"]}                                               | {workspace}/sub/paths\\n           |
        | exec  | {"argv": ["sh", "-c", "wc -l <{workspace}/sub/paths/a.txt"]}                                                        | 1\\n                          |
        | exec  | {"argv": ["printf", "%s %s", "--f={workspace}/sub/paths", "{workspace}x"]}                                          | --f={workspace}/sub/paths {workspace}x |

    @PM-16
    Scenario: A call that fails explains the host paths in its arguments
      When I call the tool exec with {"argv": ["sh", "-c", "cat {workspace}/sub/nothing"]}
      Then the call fails with reason exited
      And /metadata/mapping/unmapped/0/pointer is "/input/argv/2"
      And /metadata/mapping/unmapped/0/path is "{workspace}/sub/nothing"
      And /metadata/mapping/unmapped/0/reason matches "/workspaces/app/sub/nothing"

    @PM-17
    Scenario: A caller with container paths gets no mapping
      Given the call request includes {"paths": "container", "cwd": "/workspaces/app/sub"}
      When I call the tool write_file with {"path": "/workspaces/app/sub/of-container.txt", "content": "one\n"}
      Then the call succeeds
      And /output/path is "/workspaces/app/sub/of-container.txt"
      When I call the tool exec with {"argv": ["sh", "-c", "pwd; cat $1; echo {workspace}", "sh", "/workspaces/app/sub/of-container.txt"]}
      Then stdout is "/workspaces/app/sub\none\n{workspace}\n"
      And /metadata/mapping is absent
      When I call the tool grep with {"pattern": "one", "path": "/workspaces/app/sub/of-container.txt"}
      Then /output/matches/0/path is "/workspaces/app/sub/of-container.txt"
      When I call the tool read_file with {"path": "/etc/passwd"}
      Then the error code is path_invalid

    @PM-10
    Scenario Outline: The locations in rewritten output open the right files on the host
      Given the call request includes {"rewrite_text": true, "cwd": "sub"}
      When I call the tool shell with {"command": "<command>"}
      Then the first location in <stream> is this line of a host file, "<line>"

      Examples:
        | stream | line          | command                                                                                               |
        | stderr | f()           | mkdir -p printed; cd printed; printf 'def f():\\n    raise OSError\\nf()\\n' >t.py; python3 $PWD/t.py |
        | stderr | return (      | mkdir -p printed; cd printed; printf 'x = 1\\nreturn (\\n' >u.py; python3 $PWD/u.py                   |
        | stdout | two words     | mkdir -p printed; cd printed; printf 'one\\ntwo words\\n' >words; grep -nH words $PWD/words           |
        | stdout | two words     | mkdir -p printed; cd printed; grep -nr --color=always words $PWD                                      |
        | stderr | die here;     | mkdir -p printed; cd printed; printf '# perl\\n\\ndie here;\\n' >d.pl; perl $PWD/d.pl                 |
        | stdout | two words     | mkdir -p printed; cd printed; git grep --no-index -n -e words -- . \| sed s,^,$PWD/,                  |
        | stderr | nothing known | mkdir -p printed; cd printed; printf 'true\\nnothing known\\n' >s.sh; bash $PWD/s.sh                  |

    Scenario: File tools use the caller's paths and the container's user
      When I call the tool write_file with {"path": "{workspace}/made/../x", "content": "x"}
      Then the error code is path_invalid
      Given a new call request
      When I call the tool write_file with {"path": "{workspace}/sub/new.txt", "content": "text\n"}
      Then /output/action is "created"
      And /output/path is "{workspace}/sub/new.txt"
      And the file {workspace}/sub/new.txt contains "text\n" and is owned by 1000
      Given a new call request
      When I call the tool read_file with {"path": "sub/new.txt"}
      Then /output is {"path": "{workspace}/sub/new.txt", "content": "text\n", "size": 5, "truncated": false}
      Given a new call request
      When I call the tool list_dir with {"path": "{workspace}/sub"}
      Then /output/path is "{workspace}/sub"
      And /output/entries/0/name is "new.txt"

  Rule: Time

    @EX-12
    Scenario: A timeout stops a call with all its processes
      Given the call request includes {"timeout_seconds": 0.7}
      When I call the tool exec with {"argv": ["sh", "-c", "trap '' TERM; setsid sleep 4711 & (sleep 4712 &) ; echo begun; sleep 4713"]}
      Then the call fails with reason timeout
      And /exit_code is null
      And stdout is "begun\n"
      And /metadata/kill/survivors is 0
      And no process "sleep 471" runs in the container
      And /duration_ms is below 10000

    @EX-12
    Scenario: An idle timeout stops a silent call
      Given the call request includes {"idle_timeout_seconds": 0.5}
      When I call the tool exec with {"argv": ["sh", "-c", "for i in 1 2 3 4; do echo $i; sleep 0.2; done; sleep 4714"]}
      Then the call fails with reason idle_timeout
      And stdout is "1\n2\n3\n4\n"
      And no process "sleep 4714" runs in the container

    @EX-12
    Scenario: A cancelled call ends as cancelled, and its output is captured
      Given a running call of exec has printed "ready", with {"argv": ["sh", "-c", "echo ready; sleep 4715"]}
      When I cancel the call
      Then the call fails with reason cancelled
      And stdout is "ready\n"
      And no process "sleep 4715" runs in the container

    Scenario: The client of a call disconnects
      When the client of exec disconnects after "ready", with {"argv": ["sh", "-c", "echo ready; sleep 4716"]}
      Then the call fails with reason cancelled
      And no process "sleep 4716" runs in the container

    Scenario: Leftover processes are killed and counted
      When I call the tool exec with {"argv": ["sh", "-c", "sleep 4717 & setsid sleep 4718 >/dev/null 2>&1 & echo done"]}
      Then the call succeeds
      And /metadata/kill is {"survivors": 0, "leftover": 2}
      And /duration_ms is below 4000
      And no process "sleep 471" runs in the container

    @EX-08
    Scenario Outline: A timeout is a number of seconds above 0 and below the maximum
      When I send the call request {"tool": "exec", "input": {"argv": ["true"]}, "workspace": "{workspace}", "timeout_seconds": <timeout>}
      Then the request fails with status 400 and code invalid_request

      Examples:
        | timeout |
        | 0       |
        | -1      |
        | "5"     |
        | "1.5s"  |
        | 3601    |
        | 1e400   |

  Rule: Errors

    @EX-12 @RS-01
    Scenario Outline: The tool's exit code or signal is the result
      When I call the tool exec with {"argv": ["sh", "-c", "<script>"]}
      Then the call <status> with reason <reason>
      And /exit_code is <code>
      And /signal is <signal>

      Examples:
        | script                        | status    | reason    | code | signal                           |
        | exit 0                        | succeeds  | exited    | 0    | null                             |
        | echo bad >&2; exit 1          | fails     | exited    | 1    | null                             |
        | exit 255                      | fails     | exited    | 255  | null                             |
        | exit 137                      | fails     | exited    | 137  | null                             |
        | kill -TERM $$                 | fails     | signalled | null | {"name":"SIGTERM","number":15}   |
        | kill -KILL $$                 | fails     | signalled | null | {"name":"SIGKILL","number":9}    |
        | kill -SEGV $$                 | fails     | signalled | null | {"name":"SIGSEGV","number":11}   |

    @RS-01
    Scenario: A success has no error; a failure has one, even without a message
      When I call the tool exec with {"argv": ["true"]}
      Then /error is null
      Given a new call request
      When I call the tool exec with {"argv": ["false"]}
      Then /error is {"message": ""}
      Given a new call request
      When I call the tool exec with {"argv": ["sh", "-c", "echo why >&2; exit 3"]}
      Then /error/message is "why"

    @EX-12
    Scenario Outline: A failed start has a code and a hint
      Given the call request includes {"cwd": "<cwd>"}
      When I call the tool exec with {"argv": ["<program>"]}
      Then the call fails with reason start_failed
      And the error code is <code>
      And the error has a hint
      And no process was started

      Examples:
        | program         | cwd         | code                 |
        | nobody-has-this |             | executable_not_found |
        | /nowhere/x      |             | executable_not_found |
        | /etc/passwd     |             | not_executable       |
        | /tmp            |             | not_executable       |
        | pwd             | not/there   | bad_cwd              |
        | pwd             | tool.sh     | bad_cwd              |

    @EX-02
    Scenario Outline: Malformed names are refused
      When I send the call request {"tool": "<tool>", "input": {"argv": ["true"]}, "container": "<container>"}
      Then the request fails with status <status> and code <code>

      Examples:
        | tool  | container | status | code            |
        | exec  | -x        | 400    | invalid_request |
        | exec  | a/b       | 400    | invalid_request |
        | exec  | a b       | 400    | invalid_request |
        | -exec |           | 400    | invalid_request |
        | ex ec |           | 400    | invalid_request |
        | Exec  |           | 404    | unknown_tool    |

    @EX-01
    Scenario: A container that does not belong to the workspace is refused
      Given the call request includes {"container": "{other container}"}
      When I call the tool exec with {"argv": ["true"]}
      Then the request fails with status 422 and code route_conflict
      And the error has a hint

    @EX-01
    Scenario: A workspace with its own container; blank names count as absent
      Given the call request includes {"container": "{container}"}
      When I call the tool exec with {"argv": ["true"]}
      Then the call succeeds
      And /metadata/container/id is "{container}"
      Given a new call request
      And the call request includes {"container": "", "environment": "auto", "cwd": ""}
      When I call the tool exec with {"argv": ["pwd"]}
      Then stdout is "/workspaces/app\n"

    @EX-01
    Scenario: A rule that requires a container without one is refused
      When I send the call request {"tool": "seen", "input": {}, "environment": "container"}
      Then the request fails with status 400 and code invalid_request
      And the error message contains "neither it nor an override names one or a workspace"

    @EX-15
    Scenario: Without an agent the engine's exec is used, and the result has a warning
      Given a container where nothing can be installed
      When I call the tool exec with {"argv": ["sh", "-c", "echo here; exit 6"]}
      Then /exit_code is 6
      And stdout is "here\n"
      And /metadata/container/transport is "engine"
      And /metadata/kill/survivors is null
      And /metadata/warnings/0 matches "the agent could not be installed"

    @EX-12
    Scenario: If a container stops, its calls end as unavailable, never as exited
      Given a separate container
      And a running call of exec has printed "ready", with {"argv": ["sh", "-c", "echo ready; sleep 4719"]}
      When the container is killed
      Then the call fails with reason unavailable
      And /exit_code is null
      And stdout is "ready\n"
      Given a new call request
      When I call the tool exec with {"argv": ["true"]}
      Then the call fails with reason unavailable
      And the error code is container_unavailable
      And the error has a hint

    @EX-12 @CA-04
    Scenario: A tool killed for memory ends as oom with its output, and the next call works
      Given a container with 64m of memory
      When I call the tool exec with {"argv": ["sh", "-c", "echo begun; echo trouble >&2; exec awk 'BEGIN { s = \"x\"; while (1) s = s s }'"]}
      Then the call fails with reason oom
      And /exit_code is null
      And /signal is null
      And the error message contains "memory ran out"
      And the error has a hint
      And stdout is "begun\n"
      And stderr is "trouble\n"
      When I call the tool exec with {"argv": ["true"]}
      Then the call succeeds

  Rule: The audit log

    @AU-01
    Scenario: The begin record is committed before the run, the end record before the response
      Given a running call of exec has printed "ready", with {"argv": ["sh", "-c", "echo ready; sleep 4720"]}
      Then the audit log records status "running" for the call
      And the audit log contains the events "begun" of the call
      When I cancel the call
      Then the audit log records reason "cancelled" for the call
      And the audit log contains the events "begun ended" of the call

    @AU-01
    Scenario: Calls that could not run are recorded too
      When I call the tool exec with {"argv": ["nobody-has-this"]}
      Then the audit log records reason "start_failed" for the call
      And the audit log contains the events "begun ended" of the call

    @AU-02
    Scenario: The container's metadata is a JSON column, written from the result
      When I call the tool exec with {"argv": ["sh", "-c", "exit 9"]}
      Then the audit log contains /metadata/container as JSON
      And the audit log records exit_code 9 for the call
      And requesting the call again returns the same

    @RS-03
    Scenario: Times are UTC with nanoseconds, and the list has the newest first
      When I call the tool exec with {"argv": ["sleep", "0.05"]}
      Then /started_at matches "^20..-..-..T..:..:..\.\d{1,9}Z$"
      And /ended_at matches "^20..-..-..T..:..:..\.\d{1,9}Z$"
      And /duration_ms is above 50
      And the call is the first of the list

  Rule: Edges

    Scenario: Large output is captured whole, and the result contains a part
      When I call the tool exec with {"argv": ["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"]}
      Then /stdout/total_bytes is 3000000
      And /stdout/kept_bytes is 3000000
      And /stdout/head_bytes is 16384
      And /stdout/omitted_bytes is 2967232
      And /stdout/truncated is false
      And the captured stdout from byte 2999990 is "xxxxxxxxxx"

    Scenario: Output that looks like a message of dray stays output
      When I call the tool exec with {"argv": ["echo", "{\"status\":\"succeeded\",\"metadata\":{\"container\":null}}"]}
      Then stdout is "{\"status\":\"succeeded\",\"metadata\":{\"container\":null}}\n"
      And /metadata/container/user is "vscode"

    Scenario: Sixteen concurrent calls do not affect each other
      When I make 16 concurrent calls of exec with {"argv": ["sh", "-c", "read x; echo $x; echo $x >&2; exit $x"]}
      Then each call returns its own number

    Scenario: A tool need not read its stdin
      Given the call request includes 4000000 bytes of stdin
      When I call the tool exec with {"argv": ["true"]}
      Then the call succeeds

    Scenario: Output that is not text
      When I call the tool exec with {"argv": ["printf", "\\377\\303"]}
      Then /stdout/total_bytes is 2
      And stdout is "�"
      And the captured stdout from byte 0 is base64 "/8M="

    @EX-06
    Scenario: On the host a tool gets none of the daemon's variables
      Given the call request includes {"environment": "host", "env": {"MINE": "1"}}
      When I call the tool exec with {"argv": ["env"]}
      Then the call succeeds
      And stdout contains exactly the variables "DRAY_CALL_ID DRAY_RESULTS HOME LANG MINE PATH PWD TERM"
      And stdout does not contain "{secret}"

    @EX-06
    Scenario Outline: On the host a call sets no variable that runs code or redirects tools
      Given the call request includes {"environment": "host", "env": {"<name>": "x"}}
      When I call the tool exec with {"argv": ["true"]}
      Then the call fails with reason denied
      And the error code is denied
      And no process was started

      Examples:
        | name           |
        | LD_PRELOAD     |
        | LD_ANY         |
        | BASH_ENV       |
        | ENV            |
        | GIT_SSH        |
        | PAGER          |
        | DOCKER_HOST    |
