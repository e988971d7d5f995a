Feature: A tool runs in the project's devcontainer
  An agent calls a tool with the paths of its own side. The tool runs in the container as `devcontainer exec` would have run it, its output
  comes back with the caller's paths, its end has one reason, and the trail holds all of it.

  Background:
    Given the workspace {workspace}

  Rule: Basic execution

    @EX-01 @EX-07 @CF-05 @RS-02
    Scenario: A program runs as the user, in the folder and with the environment that the devcontainer names
      When the tool exec is called with {"argv": ["sh", "-c", "id -un; id -Gn; pwd; umask; echo $FROM_CONFIG $FROM_CONTAINER $DRAY_TEST_BASHRC"]}
      Then the call has succeeded
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
    Scenario: Arguments arrive byte for byte, and no shell sees them
      When the tool exec is called with {"argv": ["printf", "[%s]", "", " a  b ", "$HOME `id` $(id)", "*", "1.0", "0x10", "new\nline", "ä\u2028😀", "--help", "\\", "'\""]}
      Then stdout is "[][ a  b ][$HOME `id` $(id)][*][1.0][0x10][new\nline][ä\u2028😀][--help][\\]['\"]"

    @EX-03
    Scenario: A command tool gets its input as JSON on stdin and never among its arguments
      When the tool seen is called with {"text": "$(id) 'quoted' ü\n", "number": 12345678901234567890, "deep": {"list": [1, [true, null]]}}
      Then the call has succeeded
      And /output/stdin is {"text": "$(id) 'quoted' ü\n", "number": 12345678901234567890, "deep": {"list": [1, [true, null]]}}
      And /output/arguments is ["--fixed"]

    @EX-03
    Scenario Outline: An input is one JSON object
      When this is asked: {"tool": "seen", "input": <input>, "workspace": "{workspace}"}
      Then it is refused with 400 and invalid_request

      Examples:
        | input  |
        | [1]    |
        | "text" |
        | 5      |
        | null   |

    Scenario: A shell command is told from a program
      When the tool shell is called with {"command": "echo one | tr a-z A-Z; exit 4"}
      Then the call has failed with the reason exited
      And /exit_code is 4
      And stdout is "ONE\n"

    Scenario: Binary stdin passes whole, and stdout and stderr stay apart
      Given the call also says {"stdin_base64": "AAH/Cv4ADQ=="}
      When the tool exec is called with {"argv": ["sh", "-c", "od -An -tx1; echo problem >&2"]}
      Then stdout is " 00 01 ff 0a fe 00 0d\n"
      And stderr is "problem\n"
      And the call has succeeded

    Scenario: Two calls share a container and nothing else
      Given the call also says {"env": {"ONLY_HERE": "1"}, "cwd": "sub"}
      When the tool exec is called with {"argv": ["sh", "-c", "echo $ONLY_HERE; pwd; cd /; export X=1"]}
      Then stdout is "1\n/workspaces/app/sub\n"
      Given another call
      When the tool exec is called with {"argv": ["sh", "-c", "echo [$ONLY_HERE] [$X]; pwd"]}
      Then stdout is "[] []\n/workspaces/app\n"

  Rule: Path mapping

    @PM-01 @PM-14
    Scenario: Paths are mapped both ways by the container's real mounts, on whole segments
      When these paths are mapped to_container
        | {workspace}          | /workspaces/app          |
        | {workspace}/a b/ü.go | /workspaces/app/a b/ü.go |
        | {data}/set           | /data/set                |
        | {data}               | /data                    |
        | {data}evil/set       |                          |
        | /etc/hosts           |                          |
      And these paths are mapped to_host
        | /workspaces/app      | {workspace}     |
        | /workspaces/app/a.go | {workspace}/a.go |
        | /data/x/y            | {data}/x/y      |
        | /database            |                 |
        | /tmp/x               |                 |

    @PM-04
    Scenario: Where mounts overlap the longest one counts
      When these paths are mapped to_container
        | {workspace}/inner/x | /inner/x              |
        | {workspace}/inner2  | /workspaces/app/inner2 |
      And these paths are mapped to_host
        | /inner/x | {workspace}/inner/x |

    @PM-07 @PM-09
    Scenario: What the tool's schema marks as a path is mapped at any depth, in input and output, and keys never are
      When the tool marked is called with {"file": "{workspace}/a.go", "files": [{"at": "{workspace}/b.go"}, {"at": "{data}/c"}], "note": "{workspace}/a.go"}
      Then the call has succeeded
      And stdout contains "/workspaces/app/b.go"
      And stdout contains "\"note\":\"{workspace}/a.go\""
      And /output/file is "{workspace}/a.go"
      And /output/files/1/at is "{data}/c"
      And /metadata/mapping/mapped holds {"pointer": "/input/file", "from": "{workspace}/a.go", "to": "/workspaces/app/a.go"}
      And /metadata/mapping/mapped holds {"pointer": "/input/files/1/at", "from": "{data}/c", "to": "/data/c"}
      And /metadata/mapping/mapped holds {"pointer": "/output/files/0/at", "from": "/workspaces/app/b.go", "to": "{workspace}/b.go"}

    @PM-07 @PM-09
    Scenario: Without marks whole strings under a root are mapped, prose and keys are not
      When the tool seen is called with {"{workspace}/key": "{workspace}/a.go", "prose": "{workspace}/a.go is the file", "address": "http://x{workspace}/a"}
      Then /output/stdin is {"{workspace}/key": "{workspace}/a.go", "prose": "{workspace}/a.go is the file", "address": "http://x{workspace}/a"}
      And stdout contains "\"{workspace}/key\": \"/workspaces/app/a.go\""
      And stdout contains "\"prose\": \"{workspace}/a.go is the file\""

    @PM-06
    Scenario: A path outside every root stays as it is and is listed
      When the tool marked is called with {"file": "/usr/share/x//y", "files": [], "note": ""}
      Then /output/file is "/usr/share/x//y"
      And /metadata/mapping/unmapped/0/pointer is "/input/file"
      And /metadata/mapping/unmapped/0/path is "/usr/share/x//y"

    @PM-05
    Scenario Outline: Dots and NUL in an input's path are refused before anything starts
      When the tool marked is called with {"file": "<path>", "files": [], "note": "x"}
      Then the call has failed with the reason invalid
      And the error is path_invalid
      And nothing was started

      Examples:
        | path                     |
        | {workspace}/../etc       |
        | {workspace}/a/..         |
        | {workspace}/nul\u0000    |

    @PM-05
    Scenario: A bad path in an output stays raw, with a mapping error, since the work is done
      When the tool odd is called with {}
      Then the call has succeeded
      And /output/file is "/workspaces/app/../up"
      And /metadata/mapping/errors/0/pointer is "/output/file"

    @PM-08
    Scenario: An input that is too deep is refused before anything starts
      When the tool seen is called with an input of 65 levels below its top
      Then the call has failed with the reason invalid
      And the error is path_too_deep
      And nothing was started

    @PM-08
    Scenario: An input of the greatest depth is mapped
      When the tool seen is called with an input of 64 levels below its top
      Then the call has succeeded
      And stdout contains "/workspaces/app/deepest"

    @PM-11
    Scenario: Metadata keeps the container's paths
      When the tool seen is called with {"a": "{workspace}"}
      Then /metadata/container/workspace_folder is "/workspaces/app"
      And /output/stdin/a is "{workspace}"

    @PM-10
    Scenario: Text output is not rewritten unless somebody asks for it
      When the tool exec is called with {"argv": ["sh", "-c", "echo /workspaces/app/a.go:1; pwd"]}
      Then stdout is "/workspaces/app/a.go:1\n/workspaces/app\n"
      And /stdout/rewritten is not there

    @PM-10
    Scenario: Text output is rewritten where the call asks for it, and what the tool printed is kept, too
      Given the call also says {"rewrite_text": true}
      When the tool exec is called with {"argv": ["sh", "-c", "pwd; printf /workspaces/ap; sleep 0.1; printf 'p/a b.go:1:2: /data/x /database '; echo \"(file://$PWD/a%20b.go)\"; echo $PWD/../up $PWD-2 >&2"]}
      Then the call has succeeded
      And stdout is "{workspace}\n{workspace}/a b.go:1:2: {data}/x /database (file://{workspace}/a%20b.go)\n"
      And stderr is "/workspaces/app/../up /workspaces/app-2\n"
      And /stdout/rewritten/paths is 4
      And /stderr/rewritten/paths is 0
      And the kept stdout from 0 on is "/workspaces/app\n/workspaces/app/a b.go:1:2: /data/x /database (file:///workspaces/app/a%20b.go)\n"
      And the rewritten stdout from 0 on is "{workspace}\n{workspace}/a b.go:1:2: {data}/x /database (file://{workspace}/a%20b.go)\n"
      And the rewritten stderr from 16 on is "../up /workspaces/app-2\n"

    @PM-10
    Scenario Outline: Whoever reads what a tool printed opens the very place that it names
      Given the call also says {"rewrite_text": true, "cwd": "sub"}
      When the tool shell is called with {"command": "<command>"}
      Then the first place in <stream> is a line of a file here, "<line>"

      Examples:
        | stream | line          | command                                                                                               |
        | stderr | f()           | mkdir -p printed; cd printed; printf 'def f():\\n    raise OSError\\nf()\\n' >t.py; python3 $PWD/t.py |
        | stderr | return (      | mkdir -p printed; cd printed; printf 'x = 1\\nreturn (\\n' >u.py; python3 $PWD/u.py                   |
        | stdout | two words     | mkdir -p printed; cd printed; printf 'one\\ntwo words\\n' >words; grep -nH words $PWD/words           |
        | stdout | two words     | mkdir -p printed; cd printed; grep -nr --color=always words $PWD                                      |
        | stderr | die here;     | mkdir -p printed; cd printed; printf '# perl\\n\\ndie here;\\n' >d.pl; perl $PWD/d.pl                 |
        | stdout | two words     | mkdir -p printed; cd printed; git grep --no-index -n -e words -- . \| sed s,^,$PWD/,                  |
        | stderr | nothing known | mkdir -p printed; cd printed; printf 'true\\nnothing known\\n' >s.sh; bash $PWD/s.sh                  |

    Scenario: File tools speak the caller's paths and act as the container's user
      When the tool write_file is called with {"path": "{workspace}/made/../x", "content": "x"}
      Then the error is path_invalid
      Given another call
      When the tool write_file is called with {"path": "{workspace}/sub/new.txt", "content": "text\n"}
      Then /output/action is "created"
      And /output/path is "{workspace}/sub/new.txt"
      And the file {workspace}/sub/new.txt holds "text\n" and belongs to 1000
      Given another call
      When the tool read_file is called with {"path": "sub/new.txt"}
      Then /output is {"path": "{workspace}/sub/new.txt", "content": "text\n", "size": 5, "truncated": false}
      Given another call
      When the tool list_dir is called with {"path": "{workspace}/sub"}
      Then /output/path is "{workspace}/sub"
      And /output/entries/0/name is "new.txt"

  Rule: Time

    @EX-12
    Scenario: A call that takes too long is ended with all that it started
      Given the call also says {"timeout_seconds": 0.7}
      When the tool exec is called with {"argv": ["sh", "-c", "trap '' TERM; setsid sleep 4711 & (sleep 4712 &) ; echo begun; sleep 4713"]}
      Then the call has failed with the reason timeout
      And /exit_code is null
      And stdout is "begun\n"
      And /metadata/kill/survivors is 0
      And no process "sleep 471" is in the container
      And /duration_ms is below 10000

    @EX-12
    Scenario: A call that says nothing for too long is ended
      Given the call also says {"idle_timeout_seconds": 0.5}
      When the tool exec is called with {"argv": ["sh", "-c", "for i in 1 2 3 4; do echo $i; sleep 0.2; done; sleep 4714"]}
      Then the call has failed with the reason idle_timeout
      And stdout is "1\n2\n3\n4\n"
      And no process "sleep 4714" is in the container

    @EX-12
    Scenario: A cancelled call ends as cancelled, and what it printed is kept
      Given the tool exec has printed "ready" when called with {"argv": ["sh", "-c", "echo ready; sleep 4715"]}
      When the call is cancelled
      Then the call has failed with the reason cancelled
      And stdout is "ready\n"
      And no process "sleep 4715" is in the container

    Scenario: The client of a call goes away
      When the client of exec goes away after "ready", called with {"argv": ["sh", "-c", "echo ready; sleep 4716"]}
      Then the call has failed with the reason cancelled
      And no process "sleep 4716" is in the container

    Scenario: What a tool leaves in the background is ended with it and counted
      When the tool exec is called with {"argv": ["sh", "-c", "sleep 4717 & setsid sleep 4718 >/dev/null 2>&1 & echo done"]}
      Then the call has succeeded
      And /metadata/kill is {"survivors": 0, "leftover": 2}
      And /duration_ms is below 4000
      And no process "sleep 471" is in the container

    @EX-08
    Scenario Outline: A timeout is a number of seconds above 0 and below the maximum
      When this is asked: {"tool": "exec", "input": {"argv": ["true"]}, "workspace": "{workspace}", "timeout_seconds": <timeout>}
      Then it is refused with 400 and invalid_request

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
    Scenario Outline: A tool's own end is its own
      When the tool exec is called with {"argv": ["sh", "-c", "<script>"]}
      Then the call has <status> with the reason <reason>
      And /exit_code is <code>
      And /signal is <signal>

      Examples:
        | script                        | status    | reason    | code | signal                           |
        | exit 0                        | succeeded | exited    | 0    | null                             |
        | echo bad >&2; exit 1          | failed    | exited    | 1    | null                             |
        | exit 255                      | failed    | exited    | 255  | null                             |
        | exit 137                      | failed    | exited    | 137  | null                             |
        | kill -TERM $$                 | failed    | signalled | null | {"name":"SIGTERM","number":15}   |
        | kill -KILL $$                 | failed    | signalled | null | {"name":"SIGKILL","number":9}    |
        | kill -SEGV $$                 | failed    | signalled | null | {"name":"SIGSEGV","number":11}   |

    @RS-01
    Scenario: A success has no error, and a failure has one even where it has no words
      When the tool exec is called with {"argv": ["true"]}
      Then /error is null
      Given another call
      When the tool exec is called with {"argv": ["false"]}
      Then /error is {"message": ""}
      Given another call
      When the tool exec is called with {"argv": ["sh", "-c", "echo why >&2; exit 3"]}
      Then /error/message is "why"

    @EX-12
    Scenario Outline: What cannot be started says why, and what to do next
      Given the call also says {"cwd": "<cwd>"}
      When the tool exec is called with {"argv": ["<program>"]}
      Then the call has failed with the reason start_failed
      And the error is <code>
      And the error has a hint
      And nothing was started

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
      When this is asked: {"tool": "<tool>", "input": {"argv": ["true"]}, "container": "<container>"}
      Then it is refused with <status> and <code>

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
      Given the call also says {"container": "{other container}"}
      When the tool exec is called with {"argv": ["true"]}
      Then it is refused with 422 and route_conflict
      And the error has a hint

    @EX-01
    Scenario: Workspace and its own container together, and blank names as absent
      Given the call also says {"container": "{container}"}
      When the tool exec is called with {"argv": ["true"]}
      Then the call has succeeded
      And /metadata/container/id is "{container}"
      Given another call
      And the call also says {"container": "", "environment": "auto", "cwd": ""}
      When the tool exec is called with {"argv": ["pwd"]}
      Then stdout is "/workspaces/app\n"

    @EX-01
    Scenario: A rule that needs a container and has none is refused
      When this is asked: {"tool": "seen", "input": {}, "environment": "container"}
      Then it is refused with 400 and invalid_request
      And the error says "neither it nor an override names a container or a workspace"

    @EX-15
    Scenario: Where no agent can be placed the engine's exec is used, and the result says so
      Given a container without a writable root
      When the tool exec is called with {"argv": ["sh", "-c", "echo here; exit 6"]}
      Then /exit_code is 6
      And stdout is "here\n"
      And /metadata/container/transport is "engine"
      And /metadata/kill/survivors is null
      And /metadata/warnings/0 matches "no agent could be placed"

    @EX-12
    Scenario: A container that goes away ends its calls as unavailable, never as the tool's exit
      Given a container of its own
      And the tool exec has printed "ready" when called with {"argv": ["sh", "-c", "echo ready; sleep 4719"]}
      When the container is killed
      Then the call has failed with the reason unavailable
      And /exit_code is null
      And stdout is "ready\n"
      Given another call
      When the tool exec is called with {"argv": ["true"]}
      Then the call has failed with the reason unavailable
      And the error is container_unavailable
      And the error has a hint

    @EX-12 @CA-04
    Scenario: A tool that the kernel kills because memory ran out ends as oom, with what it printed, and the next call works
      Given a container with 64m of memory
      When the tool exec is called with {"argv": ["sh", "-c", "echo begun; echo trouble >&2; exec awk 'BEGIN { s = \"x\"; while (1) s = s s }'"]}
      Then the call has failed with the reason oom
      And /exit_code is null
      And /signal is null
      And the error says "memory ran out"
      And the error has a hint
      And stdout is "begun\n"
      And stderr is "trouble\n"
      When the tool exec is called with {"argv": ["true"]}
      Then the call has succeeded

  Rule: The trail

    @AU-01
    Scenario: The intent is in the trail while the call runs, and the end before the reply
      Given the tool exec has printed "ready" when called with {"argv": ["sh", "-c", "echo ready; sleep 4720"]}
      Then the trail says of the call that status is "running"
      And the trail has the events "begun" of the call
      When the call is cancelled
      Then the trail says of the call that reason is "cancelled"
      And the trail has the events "begun ended" of the call

    @AU-01
    Scenario: What could not run is in the trail, too
      When the tool exec is called with {"argv": ["nobody-has-this"]}
      Then the trail says of the call that reason is "start_failed"
      And the trail has the events "begun ended" of the call

    @AU-02
    Scenario: The container's metadata is a JSON column, written from the result
      When the tool exec is called with {"argv": ["sh", "-c", "exit 9"]}
      Then the trail holds /metadata/container as JSON
      And the trail says of the call that exit_code is 9
      And asking for the call again gives the same

    @RS-03
    Scenario: Times are UTC with nanoseconds, and the list has the newest first
      When the tool exec is called with {"argv": ["sleep", "0.05"]}
      Then /started_at matches "^20..-..-..T..:..:..\.\d{1,9}Z$"
      And /ended_at matches "^20..-..-..T..:..:..\.\d{1,9}Z$"
      And /duration_ms is above 50
      And the call is the first of the list

  Rule: Edges

    Scenario: Large output is kept whole and shown in part
      When the tool exec is called with {"argv": ["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"]}
      Then /stdout/total_bytes is 3000000
      And /stdout/kept_bytes is 3000000
      And /stdout/head_bytes is 16384
      And /stdout/omitted_bytes is 2967232
      And /stdout/truncated is false
      And the kept stdout from 2999990 on is "xxxxxxxxxx"

    Scenario: What looks like dray's own messages stays output
      When the tool exec is called with {"argv": ["echo", "{\"status\":\"succeeded\",\"metadata\":{\"container\":null}}"]}
      Then stdout is "{\"status\":\"succeeded\",\"metadata\":{\"container\":null}}\n"
      And /metadata/container/user is "vscode"

    Scenario: Sixteen calls at once do not meet
      When 16 calls of exec run at once with {"argv": ["sh", "-c", "read x; echo $x; echo $x >&2; exit $x"]}
      Then each of them ended with its own number

    Scenario: A tool that does not read its stdin is no failure
      Given the call also has 4000000 bytes of stdin
      When the tool exec is called with {"argv": ["true"]}
      Then the call has succeeded

    Scenario: Output that is no text
      When the tool exec is called with {"argv": ["printf", "\\377\\303"]}
      Then /stdout/total_bytes is 2
      And stdout is "�"
      And the kept stdout from 0 on is base64 "/8M="

    @EX-06
    Scenario: On the host a tool gets a built environment and nothing of the daemon's
      Given the call also says {"environment": "host", "env": {"MINE": "1"}}
      When the tool exec is called with {"argv": ["env"]}
      Then the call has succeeded
      And stdout has exactly the variables "HOME LANG MINE PATH PWD TERM"
      And stdout does not contain "{secret}"

    @EX-06
    Scenario Outline: On the host a call sets no variable that runs code or redirects tools
      Given the call also says {"environment": "host", "env": {"<name>": "x"}}
      When the tool exec is called with {"argv": ["true"]}
      Then the call has failed with the reason denied
      And the error is denied
      And nothing was started

      Examples:
        | name           |
        | LD_PRELOAD     |
        | LD_ANY         |
        | BASH_ENV       |
        | ENV            |
        | GIT_SSH        |
        | PAGER          |
        | DOCKER_HOST    |
