Feature: File tools are the same on the host and in the container
  An agent finds, reads and changes files by host paths. No program of the image is used, paths that lead out of the workspace are refused, and
  changes are reported.

  Background:
    Given the workspace {workspace}

  Rule: Finding files

    @EX-17 @PM-07
    Scenario Outline: glob finds names, also hidden ones, but not in .git
      Given the call request includes {"environment": "<where>"}
      When I call the tool glob with {"pattern": "**/*.{go,yml}", "path": "{workspace}/tree"}
      Then the call succeeds
      And /output is {"paths": ["{workspace}/tree/.github/ci.yml", "{workspace}/tree/a/x.go", "{workspace}/tree/a-b/y.go", "{workspace}/tree/main.go"], "truncated": false}

      Examples:
        | where     |
        | host      |
        | container |

    @EX-17
    Scenario Outline: grep finds lines by a regular expression
      Given the call request includes {"environment": "<where>", "cwd": "tree"}
      When I call the tool grep with {"pattern": "^package (a|main)$", "glob": "*.go"}
      Then the call succeeds
      And /output/matches/0 is {"path": "{workspace}/tree/a/x.go", "line": 1, "text": "package a"}
      And /output/matches/1 is {"path": "{workspace}/tree/main.go", "line": 2, "text": "package main"}
      And /output/matches/2 is absent
      And /output/truncated is false

      Examples:
        | where     |
        | host      |
        | container |

    @EX-17
    Scenario Outline: stat returns the type of a path and the target of a symlink
      Given the call request includes {"environment": "<where>"}
      When I call the tool stat with {"path": "tree/main.go"}
      Then /output/path is "{workspace}/tree/main.go"
      And /output/type is "file"
      And /output/size is 30
      And /output/mode is "0640"
      And /output/modified matches "Z$"
      When I call the tool stat with {"path": "{workspace}/tree/link"}
      Then /output/path is "{workspace}/tree/link"
      And /output/type is "symlink"
      And /output/target is "main.go"

      Examples:
        | where     |
        | host      |
        | container |

    @RT-04
    Scenario Outline: An invalid pattern is refused before anything starts
      When I send the call request {"tool": "<tool>", "input": <input>, "workspace": "{workspace}"}
      Then the request fails with status 400 and code invalid_input
      And /errors/0/pointer is "<pointer>"

      Examples:
        | tool      | input                                    | pointer            |
        | grep      | {"pattern": "("}                         | /input/pattern     |
        | grep      | {"pattern": "(?=x)"}                     | /input/pattern     |
        | grep      | {"pattern": "x", "glob": "["}            | /input/glob        |
        | glob      | {"pattern": "{a"}                        | /input/pattern     |
        | glob      | {"pattern": "/etc/*"}                    | /input/pattern     |
        | glob      | {"pattern": "../*"}                      | /input/pattern     |
        | edit_file | {"path": "x"}                            | /input             |
        | edit_file | {"path": "x", "patch": "no patch"}       | /input/patch       |
        | edit_file | {"path": "x", "edits": [{"old": "", "new": "x"}]} | /input/edits/0/old |

    Scenario: Unreadable directories are reported, and the rest is searched
      When I call the tool grep with {"pattern": "secret", "path": "locked"}
      Then the call succeeds
      And /output/matches is [{"path": "{workspace}/locked/open", "line": 1, "text": "no secret"}]
      And /output/skipped is [{"path": "{workspace}/locked/closed", "reason": "the user that tools run as may not read it"}]

  Rule: Changing files

    @EX-17 @AU-11
    Scenario Outline: edit_file replaces exact matches and returns what it changed
      Given the call request includes {"environment": "<where>"}
      When I call the tool write_file with {"path": "made/<where>.txt", "content": "one\r\ntwo\r\none\r\n"}
      Then /metadata/changes/0/action is "created"
      And /metadata/changes/0/sha256_before is absent
      When I call the tool edit_file with {"path": "{workspace}/made/<where>.txt", "edits": [{"old": "one\r\n", "new": "1\r\n", "count": 2}, {"old": "two", "new": "2"}]}
      Then the call succeeds
      And /output is {"path": "{workspace}/made/<where>.txt", "replaced": 3, "sha256": "ac7a342d94bb7863cb894a81b84a44d36af54075850add458f17c6c643d855bd"}
      And /metadata/changes/0/environment is "<where>"
      And /metadata/changes/0/path is "<path>"
      And /metadata/changes/0/action is "replaced"
      And /metadata/changes/0/sha256_before is "39d86b06b8d48283350f30de96c37066c5d8aefe01e087a1b65ce1b0420701c8"
      When I call the tool edit_file with {"path": "made/<where>.txt", "patch": "--- a/x\n+++ b/x\n@@ -2,2 +2,3 @@\n 2\r\n-1\r\n+3\r\n+4\r\n"}
      Then the call succeeds
      And /output/replaced is 1
      When I call the tool read_file with {"path": "made/<where>.txt"}
      Then /output/content is "1\r\n2\r\n3\r\n4\r\n"
      And /metadata/changes is absent

      Examples:
        | where     | path                               |
        | host      | {workspace}/made/host.txt          |
        | container | /workspaces/app/made/container.txt |

    @EX-17
    Scenario Outline: An edit that does not match changes nothing and returns the reason
      Given the call request includes {"environment": "<where>"}
      When I call the tool edit_file with {"path": "tree/main.go", "edits": [{"old": "package main", "new": "package x"}, {"old": "a", "new": "b"}]}
      Then the call fails with reason invalid
      And the error code is invalid_input
      And the error message contains "edit {workspace}/tree/main.go: old of edit 2 of 2 occurs 3 times, not once (in lines 2, 2, 4)"
      And /error/errors/0/pointer is "/input/edits/1/old"
      When I call the tool edit_file with {"path": "tree/main.go", "patch": "@@ -3,1 +3,1 @@\n-func main() { }\n+func main() {}\n"}
      Then the error code is invalid_input
      And the error message contains "hunk 1 of 1"
      And the error has a hint
      When I call the tool read_file with {"path": "tree/main.go"}
      Then /output/content is "\npackage main\n\nfunc main() {}\n"

      Examples:
        | where     |
        | host      |
        | container |

  Rule: Symlinks, pipes and hostile names

    @EX-17
    Scenario Outline: File tools do not follow symlinks out of the workspace, and do not block on pipes
      Given the call request includes {"environment": "<where>"}
      When I call the tool <tool> with <input>
      Then the call fails with reason invalid
      And the error code is path_invalid
      And the error has a hint

      Examples:
        | where     | tool      | input                                                                    |
        | host      | read_file | {"path": "hostile/passwd"}                                               |
        | container | read_file | {"path": "hostile/passwd"}                                               |
        | host      | grep      | {"pattern": "root", "path": "hostile/passwd"}                            |
        | container | grep      | {"pattern": "root", "path": "hostile/passwd"}                            |
        | host      | grep      | {"pattern": "root", "path": "hostile/etc"}                               |
        | container | grep      | {"pattern": "root", "path": "hostile/etc"}                               |
        | host      | glob      | {"pattern": "*", "path": "hostile/etc"}                                  |
        | container | glob      | {"pattern": "*", "path": "hostile/etc"}                                  |
        | host      | stat      | {"path": "hostile/etc/passwd"}                                           |
        | container | stat      | {"path": "hostile/etc/passwd"}                                           |
        | host      | edit_file | {"path": "hostile/passwd", "edits": [{"old": "root", "new": "x"}]}       |
        | container | edit_file | {"path": "hostile/passwd", "edits": [{"old": "root", "new": "x"}]}       |
        | host      | edit_file | {"path": "hostile/up/outside", "edits": [{"old": "x", "new": "y"}]}      |
        | container | edit_file | {"path": "hostile/up/outside", "edits": [{"old": "x", "new": "y"}]}      |
        | host      | grep      | {"pattern": "x", "path": "hostile/pipe"}                                 |
        | container | grep      | {"pattern": "x", "path": "hostile/pipe"}                                 |
        | host      | edit_file | {"path": "hostile/pipe", "edits": [{"old": "x", "new": "y"}]}            |
        | container | edit_file | {"path": "hostile/pipe", "edits": [{"old": "x", "new": "y"}]}            |
        | host      | glob      | {"pattern": "*", "path": "/etc"}                                         |
        | container | glob      | {"pattern": "*", "path": "/etc"}                                         |

    Scenario Outline: A search skips hostile names and continues
      Given the call request includes {"environment": "<where>"}
      When I call the tool grep with {"pattern": "root|needle", "path": "hostile"}
      Then the call succeeds
      And /output is {"matches": [{"path": "{workspace}/hostile/odd\\xff\n\u001b[31m", "line": 1, "text": "needle"}], "truncated": false}

      Examples:
        | where     |
        | host      |
        | container |

  Rule: Containers without a workspace

    @EX-17
    Scenario: File tools without a workspace use the cwd of the call
      Given a separate container
      When I call the tool read_file with {"path": "passwd"}
      Then the error code is path_invalid
      And the error message contains "no workspace folder"
      Given the call request includes {"cwd": "/etc"}
      When I call the tool grep with {"pattern": "^root:", "path": "passwd"}
      Then the call succeeds
      And /output/matches/0/path is "/etc/passwd"
      When I call the tool read_file with {"path": "/usr/bin/env"}
      Then the error code is path_invalid

  Rule: Text of files

    @PM-10
    Scenario: Paths in a file that is read are rewritten on request
      Given the call request includes {"rewrite_text": true}
      When I call the tool read_file with {"path": "log"}
      Then /output/content is "{workspace}/a.go:12:3: no /workspaces/apple\n"
      And /output/rewritten is 1
      And /output/size is 48
