Feature: Synced files
  Files of a container are synced to one directory on the host, all or nothing, and never outside of it.

  Background:
    Given the workspace {workspace}
    And an empty sandbox root

  Rule: Files and directories

    @SY-01 @SY-05 @SY-10
    Scenario: A directory is synced byte for byte, private, with a manifest
      When I call the tool shell with {"command": "mkdir -p /tmp/s1/deep/er && cd /tmp/s1 && printf 'a\\0b\\r\\n' >bytes && : >empty && echo run >tool && chmod 4755 tool && echo x >'deep/er/a b' && chmod 777 deep"}
      And I sync {"paths": ["/tmp/s1"]}
      Then the response has status 200
      And these files are synced
        | path           | action  | mode | size |
        | s1/bytes       | created | 0600 | 5    |
        | s1/deep/er/a b | created | 0600 | 2    |
        | s1/empty       | created | 0600 | 0    |
        | s1/tool        | created | 0600 | 4    |
      And /bytes is 11
      And /refused is []
      And the file {home}/s1/bytes contains "a\u0000b\r\n" with mode 0600
      And the directory {home}/s1/deep has mode 0700
      And the sandbox root contains "s1 s1/bytes s1/deep s1/deep/er s1/deep/er/a b s1/empty s1/tool"
      When I request the call by its id
      Then the call succeeds
      And /tool is "sync"
      And /metadata/sync/state is "complete"
      And the audit log records tool "sync" for the call

    @SY-10
    Scenario: Existing and new files are distinguished, also in a dry run
      When I call the tool shell with {"command": "mkdir /tmp/s2 && cd /tmp/s2 && echo same >same && echo old >other"}
      And I sync {"paths": ["/tmp/s2"]}
      And I call the tool shell with {"command": "cd /tmp/s2 && echo new >other && echo more >more"}
      And I sync {"paths": ["/tmp/s2"], "dry_run": true}
      Then these files are synced
        | path     | action    | mode | size |
        | s2/more  | created   | 0600 | 5    |
        | s2/other | replaced  | 0600 | 4    |
        | s2/same  | unchanged | 0600 | 5    |
      And /dry_run is true
      And the file {home}/s2/other contains "old\n" with mode 0600
      And the sandbox root contains "s2 s2/other s2/same"
      When I run dray sync --workspace {workspace} --dry-run /tmp/s2
      Then the exit code is 0
      And stdout of the command contains "+  0600  5 B   {sha256 of more}                  {home}/s2/more"
      And stdout of the command contains "~  0600  4 B   {sha256 of old} -> {sha256 of new}  {home}/s2/other"
      And stderr of the command contains "dray: 3 files, 14 B: 1 created, 1 replaced, 1 unchanged; nothing was written"
      When I sync {"paths": ["/tmp/s2"]}
      Then these files are synced
        | path     | action    | mode | size |
        | s2/more  | created   | 0600 | 5    |
        | s2/other | replaced  | 0600 | 4    |
        | s2/same  | unchanged | 0600 | 5    |
      And the file {home}/s2/other contains "new\n" with mode 0600

    Scenario: One file is synced to a directory below the root with the command line
      When I call the tool shell with {"command": "mkdir /tmp/s3 && echo one >/tmp/s3/one && echo two >/tmp/s3/two"}
      And I run dray sync --workspace {workspace} --destination to/here /tmp/s3/one /tmp/s3/two
      Then the exit code is 0
      And stdout of the command contains "created  0600  4 B   {home}/to/here/one"
      And stderr of the command contains "dray: 2 files, 8 B: 2 created"
      And the sandbox root contains "to to/here to/here/one to/here/two"

    Scenario: Names are bytes, and control codes in them are escaped
      When I call the tool shell with {"command": "mkdir /tmp/s4 && cd /tmp/s4 && echo x >\"$(printf 'a\\033[2J\\n\\377')\""}
      And I run dray sync --workspace {workspace} /tmp/s4
      Then the exit code is 0
      And stdout of the command contains "{home}/s4/a\x1b[2J\n\xff"
      When I sync {"paths": ["/tmp/s4"]}
      Then /files/0/action is "unchanged"
      And /files/0/path is "{home}/s4/a\u001b[2J\n\\xff"

  Rule: Refused paths

    @SY-02
    Scenario Outline: Files come only from the workspace, its mounts, /tmp and configured directories
      When I sync {"paths": ["<path>"]}
      Then the request fails with status 422 and code sync_refused
      And /refused/0/code is "<code>"
      And /id matches "^[0-9a-f-]{36}$"
      And the sandbox root contains ""

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
    Scenario: Symlinks, pipes and files with a second name are refused, and nothing is written
      When I call the tool shell with {"command": "mkdir /tmp/s5 && cd /tmp/s5 && echo good >good && ln -s /etc/passwd link && mkfifo pipe && echo x >/tmp/elsewhere && ln /tmp/elsewhere hard"}
      And I sync {"paths": ["/tmp/s5"]}
      Then the request fails with status 422 and code sync_refused
      And these paths are refused
        | /tmp/s5/hard | path_invalid |
        | /tmp/s5/link | path_invalid |
        | /tmp/s5/pipe | path_invalid |
      And the sandbox root contains ""
      When I sync {"paths": ["/tmp/s5"], "on_refused": "skip"}
      Then the response has status 200
      And these files are synced
        | path    | action  | mode | size |
        | s5/good | created | 0600 | 5    |
      And these paths are refused
        | /tmp/s5/hard | path_invalid |
        | /tmp/s5/link | path_invalid |
        | /tmp/s5/pipe | path_invalid |
      And the sandbox root contains "s5 s5/good"

    @SY-08
    Scenario Outline: Names that would run code on the host are refused
      When I call the tool shell with {"command": "rm -rf /tmp/s6; mkdir -p \"/tmp/s6/$(dirname '<name>')\" && echo x >'/tmp/s6/<name>'"}
      And I sync {"paths": ["/tmp/s6"]}
      Then the request fails with status 422 and code sync_refused
      And /refused/0/code is "denied"
      And the sandbox root contains ""

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
    Scenario: Denied names apply to the destination
      When I call the tool shell with {"command": "mkdir /tmp/s7 && echo x >/tmp/s7/post-checkout"}
      And I sync {"paths": ["/tmp/s7/post-checkout"], "destination": "app/.git/hooks"}
      Then the request fails with status 422 and code sync_refused
      And the sandbox root contains ""

    @SY-03
    Scenario Outline: A destination stays inside the root at every step
      Given a symlink {home}/link to {root}
      When I call the tool shell with {"command": "mkdir -p /tmp/s8 && echo x >/tmp/s8/x"}
      And I sync {"paths": ["/tmp/s8/x"], "destination": "<destination>"}
      Then the sync fails
      And the sandbox root contains "link"
      And the file {root}/x does not exist

      Examples:
        | destination |
        | ../x        |
        | a/../../x   |
        | /etc        |
        | link        |
        | link/deeper |

    @SY-01 @SY-09
    Scenario Outline: A sync above a limit is refused, and existing files stay
      When I call the tool shell with {"command": "rm -rf /tmp/s9; mkdir /tmp/s9 && cd /tmp/s9 && echo old >x"}
      And I sync {"paths": ["/tmp/s9"]}
      And I call the tool shell with {"command": "cd /tmp/s9 && echo new >x && <more>"}
      And I sync {"paths": ["/tmp/s9"]}
      Then the request fails with status 422 and code limit_exceeded
      And the file {home}/s9/x contains "old\n" with mode 0600
      And the sandbox root contains "s9 s9/x"

      Examples:
        | more                                                                  |
        | head -c 1048577 /dev/zero >big                                        |
        | for i in 1 2 3; do head -c 1000000 /dev/zero >$i; done                |
        | for i in $(seq 60); do : >$i; done                                    |
        | mkdir -p 1/2/3/4/5/6/7 && : >1/2/3/4/5/6/7/8                          |

    @SY-04
    Scenario: Without a root every sync is refused
      Given a workspace alone with the devcontainer configuration
        """
        {"image": "BUSYBOX"}
        """
      And a daemon with the configuration
        """
        devcontainer: {cli: {cli}, up_args: [--buildkit, never]}
        trust: {workspaces: [{root}/alone]}
        """
      When I sync {"paths": ["/tmp"]}
      Then the request fails with status 422 and code sync_refused
      And the error has a hint
      When I run dray sync --workspace {workspace} /tmp
      Then the exit code is 1
      And stderr of the command contains "(sync_refused)"

    @SY-04
    Scenario Outline: A root that other users could open stops the daemon with a hint
      Given a directory {root}/roots/open with mode 0755
      And a directory {root}/roots/closed with mode 0700
      And a symlink {root}/roots/link to {root}/roots/closed
      When I start a daemon with the configuration
        """
        sandbox: {root: {root}/roots/<name>}
        """
      Then the daemon exits with <code>
      And stderr of the command contains "<says>"

      Examples:
        | name | code | says                                     |
        | open | 2    | close it with: chmod 700                 |
        | link | 2    | set sandbox.root to the directory itself |

  Rule: Declared outputs

    @SY-11
    Scenario: Declared outputs of a call are synced, and its result does not change
      Given the call request includes {"sync": ["/tmp/s11", "sub/seen"]}
      When I call the tool exec with {"argv": ["sh", "-c", "mkdir /tmp/s11; echo r >/tmp/s11/r; mkdir -p sub; echo s >sub/seen; exit 3"]}
      Then the call fails with reason exited
      And /exit_code is 3
      And /metadata/sync/state is "complete"
      And the sandbox root contains "{id} {id}/tmp {id}/tmp/s11 {id}/tmp/s11/r"
      And /metadata/sync/files/0/path is "{workspace}/sub/seen"
      And /metadata/sync/files/0/action is "mounted"
      And /metadata/sync/files/1/path is "{home}/{id}/tmp/s11/r"
      And /metadata/sync/files/1/action is "created"

    @SY-11
    Scenario: Declared results of a tool are synced
      When I call the tool report with {}
      Then the call succeeds
      And /metadata/sync/state is "complete"
      And the file {home}/{id}/tmp/declared/report.txt contains "report\n" with mode 0600

    @SY-11
    Scenario: A refused output does not change the result of the call
      Given the call request includes {"sync": ["/etc/passwd"]}
      When I call the tool exec with {"argv": ["true"]}
      Then the call succeeds
      And /metadata/sync/refused/0/path is "/etc/passwd"
      And /metadata/sync/refused/0/code is "denied"
      And the sandbox root contains ""

  Rule: Push

    @SY-01
    Scenario: Files are pushed to a container without a mount, owned by its user
      Given a workspace far with the devcontainer configuration
        """
        {"image": "BUSYBOX", "remoteUser": "dev", "workspaceMount": "type=tmpfs,target=/far,tmpfs-mode=1777", "workspaceFolder": "/far"}
        """
      And a file {root}/far/data/sub/x containing "a\u0000b\r\n"
      When I trust the workspace
      And I sync {"paths": ["{root}/far/data"], "direction": "to_container"}
      Then the response has status 200
      And /files/0/path is "/far/data/sub/x"
      And /files/0/action is "created"
      Given a new call request
      When I call the tool shell with {"command": "cd /far && find . -type f && stat -c '%U %a' data/sub/x && cat data/sub/x"}
      Then stdout is "./data/sub/x\ndev 600\na\u0000b\r\n"
      When I run dray sync --push --workspace {root}/far {root}/far/data
      Then the exit code is 0
      And stdout of the command contains "unchanged  0600  5 B   /far/data/sub/x"
      When I sync {"paths": ["/etc/passwd"], "direction": "to_container"}
      Then the request fails with status 422 and code sync_refused
      And /refused/0/code is "denied"

  Rule: The audit log

    @AU-11
    Scenario: Changed files are listed by plan
      When I call the tool shell with {"command": "mkdir /tmp/s12 && cd /tmp/s12 && echo 1 >a && echo 2 >b"}
      And I sync {"paths": ["/tmp/s12"], "context": {"plan_id": "p12"}}
      And I call the tool shell with {"command": "echo 3 >/tmp/s12/b"}
      And I sync {"paths": ["/tmp/s12"], "context": {"plan_id": "p12"}}
      And I sync {"paths": ["/tmp/s12"], "context": {"plan_id": "p12"}, "dry_run": true}
      And I sync {"paths": ["/tmp/s12"], "context": {"plan_id": "other"}, "destination": "elsewhere"}
      Then the audit log lists the changed files of plan p12
        | replaced | {home}/s12/b |
        | created  | {home}/s12/b |
        | created  | {home}/s12/a |
      When I run dray audit files --plan p12
      Then the exit code is 0
      And stdout of the command contains "{home}/s12/b"
