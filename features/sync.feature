Feature: Result files come home
  What a tool made in the container comes to one folder of the host, all of it or none, and nothing of it can get out of that folder.

  Background:
    Given the workspace {workspace}
    And an empty sandbox root

  Rule: Files and folders

    @SY-01 @SY-05 @SY-10
    Scenario: A folder comes home byte for byte, closed to others, with a manifest
      When the tool shell is called with {"command": "mkdir -p /tmp/s1/deep/er && cd /tmp/s1 && printf 'a\\0b\\r\\n' >bytes && : >empty && echo run >tool && chmod 4755 tool && echo x >'deep/er/a b' && chmod 777 deep"}
      And this is synced: {"paths": ["/tmp/s1"]}
      Then it is answered with 200
      And these files came
        | path           | action  | mode | size |
        | s1/bytes       | created | 0600 | 5    |
        | s1/deep/er/a b | created | 0600 | 2    |
        | s1/empty       | created | 0600 | 0    |
        | s1/tool        | created | 0600 | 4    |
      And /bytes is 11
      And /refused is []
      And the file {home}/s1/bytes holds "a\u0000b\r\n" with the mode 0600
      And the folder {home}/s1/deep has the mode 0700
      And the sandbox root holds "s1 s1/bytes s1/deep s1/deep/er s1/deep/er/a b s1/empty s1/tool"
      When the call of the answer is asked for
      Then the call has succeeded
      And /tool is "sync"
      And /metadata/sync/state is "complete"
      And the trail says of the call that tool is "sync"

    @SY-10
    Scenario: What is there already is told from what is new, in a dry run as afterwards
      When the tool shell is called with {"command": "mkdir /tmp/s2 && cd /tmp/s2 && echo same >same && echo old >other"}
      And this is synced: {"paths": ["/tmp/s2"]}
      And the tool shell is called with {"command": "cd /tmp/s2 && echo new >other && echo more >more"}
      And this is synced: {"paths": ["/tmp/s2"], "dry_run": true}
      Then these files came
        | path     | action    | mode | size |
        | s2/more  | created   | 0600 | 5    |
        | s2/other | replaced  | 0600 | 4    |
        | s2/same  | unchanged | 0600 | 5    |
      And /dry_run is true
      And the file {home}/s2/other holds "old\n" with the mode 0600
      And the sandbox root holds "s2 s2/other s2/same"
      When I run dray sync --workspace {workspace} --dry-run /tmp/s2
      Then its exit code is 0
      And it prints "+  0600  5 B   {sha256 of more}                  {home}/s2/more"
      And it prints "~  0600  4 B   {sha256 of old} -> {sha256 of new}  {home}/s2/other"
      And it says "dray: 3 files, 14 B: 1 created, 1 replaced, 1 unchanged; nothing was written"
      When this is synced: {"paths": ["/tmp/s2"]}
      Then these files came
        | path     | action    | mode | size |
        | s2/more  | created   | 0600 | 5    |
        | s2/other | replaced  | 0600 | 4    |
        | s2/same  | unchanged | 0600 | 5    |
      And the file {home}/s2/other holds "new\n" with the mode 0600

    Scenario: One file comes home into a folder below the root, by the command line
      When the tool shell is called with {"command": "mkdir /tmp/s3 && echo one >/tmp/s3/one && echo two >/tmp/s3/two"}
      And I run dray sync --workspace {workspace} --destination to/here /tmp/s3/one /tmp/s3/two
      Then its exit code is 0
      And it prints "created  0600  4 B   {home}/to/here/one"
      And it says "dray: 2 files, 8 B: 2 created"
      And the sandbox root holds "to to/here to/here/one to/here/two"

    Scenario: Names are bytes, and what a terminal shows of them acts on nothing
      When the tool shell is called with {"command": "mkdir /tmp/s4 && cd /tmp/s4 && echo x >\"$(printf 'a\\033[2J\\n\\377')\""}
      And I run dray sync --workspace {workspace} /tmp/s4
      Then its exit code is 0
      And it prints "{home}/s4/a\x1b[2J\n\xff"
      When this is synced: {"paths": ["/tmp/s4"]}
      Then /files/0/action is "unchanged"
      And /files/0/path is "{home}/s4/a\u001b[2J\n\\xff"

  Rule: What is refused

    @SY-02
    Scenario Outline: Files come from the workspace, its mounts, /tmp and configured folders, and from nowhere else
      When this is synced: {"paths": ["<path>"]}
      Then it is refused with 422 and sync_refused
      And /refused/0/code is "<code>"
      And /id matches "^[0-9a-f-]{36}$"
      And the sandbox root holds ""

      Examples:
        | path                         | code         |
        | /etc/passwd                  | denied       |
        | /                            | denied       |
        | /tmp/../etc/passwd           | path_invalid |
        | /workspaces/app/..           | path_invalid |
        | /tmp/nul\u0000               | path_invalid |
        | /tmpother/x                  | denied       |
        | /tmp/nothing-has-this-name   | not_found    |

    @SY-02 @SY-07
    Scenario: Links, pipes and files with a name elsewhere are refused by name, and nothing is written
      When the tool shell is called with {"command": "mkdir /tmp/s5 && cd /tmp/s5 && echo good >good && ln -s /etc/passwd link && mkfifo pipe && echo x >/tmp/elsewhere && ln /tmp/elsewhere hard"}
      And this is synced: {"paths": ["/tmp/s5"]}
      Then it is refused with 422 and sync_refused
      And these paths are refused
        | /tmp/s5/hard | path_invalid |
        | /tmp/s5/link | path_invalid |
        | /tmp/s5/pipe | path_invalid |
      And the sandbox root holds ""
      When this is synced: {"paths": ["/tmp/s5"], "on_refused": "skip"}
      Then it is answered with 200
      And these files came
        | path    | action  | mode | size |
        | s5/good | created | 0600 | 5    |
      And these paths are refused
        | /tmp/s5/hard | path_invalid |
        | /tmp/s5/link | path_invalid |
        | /tmp/s5/pipe | path_invalid |
      And the sandbox root holds "s5 s5/good"

    @SY-08
    Scenario Outline: Names that would run code on the host do not come home
      When the tool shell is called with {"command": "rm -rf /tmp/s6; mkdir -p \"/tmp/s6/$(dirname '<name>')\" && echo x >'/tmp/s6/<name>'"}
      And this is synced: {"paths": ["/tmp/s6"]}
      Then it is refused with 422 and sync_refused
      And /refused/0/code is "denied"
      And the sandbox root holds ""

      Examples:
        | name                            |
        | .git/hooks/post-checkout        |
        | sub/.git/config                 |
        | .envrc                          |
        | .vscode/tasks.json              |
        | .devcontainer/devcontainer.json |
        | .GIT/Hooks/pre-commit           |
        | deep/forbidden.txt              |

    @SY-08
    Scenario: The destination counts among those names
      When the tool shell is called with {"command": "mkdir /tmp/s7 && echo x >/tmp/s7/post-checkout"}
      And this is synced: {"paths": ["/tmp/s7/post-checkout"], "destination": "app/.git/hooks"}
      Then it is refused with 422 and sync_refused
      And the sandbox root holds ""

    @SY-03
    Scenario Outline: A destination stays inside the root at every step
      Given a link {home}/link to {root}
      When the tool shell is called with {"command": "mkdir -p /tmp/s8 && echo x >/tmp/s8/x"}
      And this is synced: {"paths": ["/tmp/s8/x"], "destination": "<destination>"}
      Then the sync has not been done
      And the sandbox root holds "link"
      And the file {root}/x does not exist

      Examples:
        | destination |
        | ../x        |
        | a/../../x   |
        | /etc        |
        | link        |
        | link/deeper |

    @SY-01 @SY-09
    Scenario Outline: What is too much is refused, and the old stays
      When the tool shell is called with {"command": "rm -rf /tmp/s9; mkdir /tmp/s9 && cd /tmp/s9 && echo old >x"}
      And this is synced: {"paths": ["/tmp/s9"]}
      And the tool shell is called with {"command": "cd /tmp/s9 && echo new >x && <more>"}
      And this is synced: {"paths": ["/tmp/s9"]}
      Then it is refused with 422 and limit_exceeded
      And the file {home}/s9/x holds "old\n" with the mode 0600
      And the sandbox root holds "s9 s9/x"

      Examples:
        | more                                                                  |
        | head -c 1048577 /dev/zero >big                                        |
        | for i in 1 2 3; do head -c 1000000 /dev/zero >$i; done                |
        | for i in $(seq 60); do : >$i; done                                    |
        | mkdir -p 1/2/3/4/5/6/7 && : >1/2/3/4/5/6/7/8                          |

    @SY-04
    Scenario: Without a root every sync is refused
      Given a workspace alone with the devcontainer
        """
        {"image": "BUSYBOX"}
        """
      And a daemon with the configuration
        """
        devcontainer: {cli: {cli}, up_args: [--buildkit, never]}
        trust: {workspaces: [{root}/alone]}
        """
      When this is synced: {"paths": ["/tmp"]}
      Then it is refused with 422 and sync_refused
      And the error has a hint
      When I run dray sync --workspace {workspace} /tmp
      Then its exit code is 1
      And it says "(sync_refused)"

    @SY-04
    Scenario Outline: A root that others could reach ends the daemon, which says what to do
      Given a folder {root}/roots/open with the mode 0755
      And a folder {root}/roots/closed with the mode 0700
      And a link {root}/roots/link to {root}/roots/closed
      When a daemon is started with the configuration
        """
        sandbox: {root: {root}/roots/<name>}
        """
      Then it ends with <code>
      And it says "<says>"

      Examples:
        | name | code | says                                     |
        | open | 2    | close it with: chmod 700                 |
        | link | 2    | set sandbox.root to the directory itself |

  Rule: Declared outputs

    @SY-11
    Scenario: What a call asks for comes home when it ends, and its end is its own
      Given the call also says {"sync": ["/tmp/s11", "sub/seen"]}
      When the tool exec is called with {"argv": ["sh", "-c", "mkdir /tmp/s11; echo r >/tmp/s11/r; mkdir -p sub; echo s >sub/seen; exit 3"]}
      Then the call has failed with the reason exited
      And /exit_code is 3
      And /metadata/sync/state is "complete"
      And the sandbox root holds "{id} {id}/tmp {id}/tmp/s11 {id}/tmp/s11/r"
      And /metadata/sync/files/0/path is "{workspace}/sub/seen"
      And /metadata/sync/files/0/action is "mounted"
      And /metadata/sync/files/1/path is "{home}/{id}/tmp/s11/r"
      And /metadata/sync/files/1/action is "created"

    @SY-11
    Scenario: What a tool declares comes home by itself
      When the tool report is called with {}
      Then the call has succeeded
      And /metadata/sync/state is "complete"
      And the file {home}/{id}/tmp/declared/report.txt holds "report\n" with the mode 0600

    @SY-11
    Scenario: Where a declared output does not come the call itself stays as it ended
      Given the call also says {"sync": ["/etc/passwd"]}
      When the tool exec is called with {"argv": ["true"]}
      Then the call has succeeded
      And /metadata/sync/refused/0/path is "/etc/passwd"
      And /metadata/sync/refused/0/code is "denied"
      And the sandbox root holds ""

  Rule: The other way

    @SY-01
    Scenario: Files of the host go to a container whose workspace is not mounted, and belong to its user
      Given a workspace far with the devcontainer
        """
        {"image": "BUSYBOX", "remoteUser": "dev", "workspaceMount": "type=tmpfs,target=/far,tmpfs-mode=1777", "workspaceFolder": "/far"}
        """
      And a file {root}/far/data/sub/x with "a\u0000b\r\n"
      When POST /v1/workspaces/{id}/trust is asked
      And this is synced: {"paths": ["{root}/far/data"], "direction": "to_container"}
      Then it is answered with 200
      And /files/0/path is "/far/data/sub/x"
      And /files/0/action is "created"
      Given another call
      When the tool shell is called with {"command": "cd /far && find . -type f && stat -c '%U %a' data/sub/x && cat data/sub/x"}
      Then stdout is "./data/sub/x\ndev 600\na\u0000b\r\n"
      When I run dray sync --push --workspace {root}/far {root}/far/data
      Then its exit code is 0
      And it prints "unchanged  0600  5 B   /far/data/sub/x"
      When this is synced: {"paths": ["/etc/passwd"], "direction": "to_container"}
      Then it is refused with 422 and sync_refused
      And /refused/0/code is "denied"

  Rule: The trail

    @AU-11
    Scenario: What dray changed is listed by plan
      When the tool shell is called with {"command": "mkdir /tmp/s12 && cd /tmp/s12 && echo 1 >a && echo 2 >b"}
      And this is synced: {"paths": ["/tmp/s12"], "context": {"plan_id": "p12"}}
      And the tool shell is called with {"command": "echo 3 >/tmp/s12/b"}
      And this is synced: {"paths": ["/tmp/s12"], "context": {"plan_id": "p12"}}
      And this is synced: {"paths": ["/tmp/s12"], "context": {"plan_id": "p12"}, "dry_run": true}
      And this is synced: {"paths": ["/tmp/s12"], "context": {"plan_id": "other"}, "destination": "elsewhere"}
      Then the trail lists as changed for the plan p12
        | replaced | {home}/s12/b |
        | created  | {home}/s12/b |
        | created  | {home}/s12/a |
      When I run dray audit files --plan p12
      Then its exit code is 0
      And it prints "{home}/s12/b"
