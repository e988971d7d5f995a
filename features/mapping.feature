Feature: Paths are right on both sides
  A caller uses host paths, a tool container paths. Mapped and unmapped paths are reported by JSON pointer, and invalid paths are refused before
  anything starts.

  Background:
    Given the workspace {workspace}

  Rule: Roots

    @PM-01 @PM-02 @PM-04 @PM-14
    Scenario: Configured mappings are added to the mounts, and the longest root applies
      When I map these paths to_host
        | /workspaces/app/src/a.go        | {root}/app/src/a.go     |
        | /workspaces/app/generated/a.go  | {root}/generated/a.go   |
        | /workspaces/app/generated       | {root}/generated        |
        | /workspaces/app/generated2/a.go | {root}/app/generated2/a.go |
        | /tmp/results/                   | {root}/results          |
        | /tmp/results//x/./y/            | {root}/results/x/y      |
        | /tmp/result                     |                         |
        | /data/deep/er/x                 | {root}/deeper/x         |
        | /data/deep/x                    | {root}/data/deep/x      |
        | {root}/same/x                   | {root}/same/x           |
        | /cache/x                        |                         |
        | /                               |                         |
      And I map these paths to_container
        | {root}/results/x            | /tmp/results/x               |
        | {root}/generated/x          | /workspaces/app/generated/x  |
        | {root}/app/generated/x      |                              |
        | {root}/app//src/./a.go/     | /workspaces/app/src/a.go     |
        | {root}/deeper               | /data/deep/er                |
        | {root}/data/deep/er         |                              |
        | {root}/same                 | {root}/same                  |
        | {root}/sameish              |                              |
        | {root}                      |                              |

    @PM-14
    Scenario: A mapping applies to its container, however a call selects it
      Given the call request includes {"container": "named"}
      When I call the tool print with {"o": {"a": "{root}/results/x"}}
      Then stdout contains "/tmp/results/x"
      And /output/a is "{root}/results/x"
      Given a new call request
      And the call request includes {"container": "{container}"}
      When I call the tool print with {"o": {"a": "{root}/results/x"}}
      Then stdout contains "/tmp/results/x"

    @PM-03 @PM-04
    Scenario: A mount that cannot be mapped is skipped with a warning
      When I call the tool exec with {"argv": ["true"]}
      Then the call succeeds
      And /metadata/warnings/0 matches "{root}/up.*is an ancestor of.*{root}/up/below"

    @PM-05 @PM-15
    Scenario Outline: Invalid paths are refused, each with its position
      When I send POST /v1/paths with {"workspace": "{workspace}", "direction": "to_host", "paths": ["/fine", <path>]}
      Then the request fails with status 400 and code invalid_input
      And /errors/0/pointer is "/paths/1"
      And the error message contains "<why>"
      And the error has a hint

      Examples:
        | path                     | why           |
        | "/workspaces/app/../x"   | segment       |
        | ".."                     | segment       |
        | "/workspaces/app/a\u0000" | NUL          |
        | "C:\\\\Users\\\\me"      | Windows path  |
        | "\\\\\\\\server\\\\share"  | Windows path  |

  Rule: Which values are paths

    @PM-07 @PM-09
    Scenario Outline: A schema can mark paths at every position, in inputs and outputs
      When I call the tool marked with {"<member>": <host>}
      Then the call succeeds
      And stdout is "{\"<member>\":<container>}"
      And /output/<member> is <host>
      And /metadata/mapping/errors is []

      Examples:
        | member  | host                                                                 | container |
        | ref     | "{workspace}/a"                                                      | \"/workspaces/app/a\" |
        | tree    | {"at":"{data}/a","below":[{"at":"{workspace}","below":[]}]}          | {\"at\":\"/data/a\",\"below\":[{\"at\":\"/workspaces/app\",\"below\":[]}]} |
        | all     | "{workspace}/a b"                                                    | \"/workspaces/app/a b\" |
        | any     | "{workspace}/a?b#c"                                                  | \"/workspaces/app/a?b#c\" |
        | one     | "{workspace}/ü/名"                                                   | \"/workspaces/app/ü/名\" |
        | one     | 5                                                                    | 5 |
        | items   | ["{workspace}/a","/etc/a",""]                                        | [\"/workspaces/app/a\",\"/etc/a\",\"\"] |
        | prefix  | ["{workspace}/a","{workspace}/b","{workspace}/c"]                    | [\"{workspace}/a\",\"/workspaces/app/b\",\"{workspace}/c\"] |
        | more    | {"{workspace}":"{workspace}/a","text":"{workspace}/b"}               | {\"{workspace}\":\"/workspaces/app/a\",\"text\":\"{workspace}/b\"} |
        | pattern | {"a_file":"{workspace}/a","a_text":"{workspace}/b"}                  | {\"a_file\":\"/workspaces/app/a\",\"a_text\":\"{workspace}/b\"} |
        | when    | {"kind":"file","value":"{workspace}/a"}                              | {\"kind\":\"file\",\"value\":\"/workspaces/app/a\"} |
        | list    | "{workspace}/bin::/usr/bin:{data}"                                   | \"/workspaces/app/bin::/usr/bin:/data\" |
        | list    | ""                                                                   | \"\" |
        | uri     | "file://{workspace}/a%20b#L3"                                        | \"file:///workspaces/app/a%20b#L3\" |
        | uri     | "file://localhost{data}/%C3%BC"                                      | \"file://localhost/data/%C3%BC\" |
        | uri     | "file://elsewhere{workspace}/a"                                      | \"file://elsewhere{workspace}/a\" |
        | uri     | "https://example.org{workspace}/a"                                   | \"https://example.org{workspace}/a\" |
        | text    | "{workspace}/a"                                                      | \"{workspace}/a\" |
        | off     | "{workspace}/a"                                                      | \"{workspace}/a\" |

    @PM-06 @PM-07 @PM-09
    Scenario: Every path is reported with its pointer, mapped or not
      When I call the tool marked with {"items": ["{workspace}/a", "sub/b", "/etc/c"], "list": "/bin:{data}", "more": {"x~y/z": "{workspace}/d"}, "text": "{workspace}/e"}
      Then /metadata/mapping/mapped is [{"pointer": "/input/items/0", "from": "{workspace}/a", "to": "/workspaces/app/a"}, {"pointer": "/input/list", "from": "{data}", "to": "/data"}, {"pointer": "/input/more/x~0y~1z", "from": "{workspace}/d", "to": "/workspaces/app/d"}, {"pointer": "/output/items/0", "from": "/workspaces/app/a", "to": "{workspace}/a"}, {"pointer": "/output/list", "from": "/data", "to": "{data}"}, {"pointer": "/output/more/x~0y~1z", "from": "/workspaces/app/d", "to": "{workspace}/d"}]
      And /metadata/mapping/unmapped/0/pointer is "/input/items/1"
      And /metadata/mapping/unmapped/1/pointer is "/input/items/2"
      And /metadata/mapping/unmapped/2/pointer is "/input/list"
      And /metadata/mapping/unmapped/2/path is "/bin"
      And /metadata/mapping/unmapped/5/pointer is "/output/list"
      And /metadata/mapping/unmapped/6 is absent
      And /output/items/1 is "sub/b"

    @PM-09
    Scenario Outline: Without marks, a string must look like a path
      When I call the tool print with {"o": {"v": "<host>"}}
      Then stdout is "{\"v\": \"<container>\"}"
      And /output/v is "<host>"

      Examples:
        | host                                  | container                            |
        | {workspace}/a.go                      | /workspaces/app/a.go                 |
        | {workspace}                           | /workspaces/app                      |
        | {workspace}/ünï/名.go                 | /workspaces/app/ünï/名.go            |
        | {workspace}/with space.txt            | /workspaces/app/with space.txt       |
        | {workspace}/README.md is the file     | {workspace}/README.md is the file    |
        | {workspace}/a?x=1                     | {workspace}/a?x=1                    |
        | {workspace}/a#L1                      | {workspace}/a#L1                     |
        | /{workspace}/a                        | /{workspace}/a                       |
        | file://{workspace}/a                  | file://{workspace}/a                 |
        | see {workspace}/a                     | see {workspace}/a                    |
        | {workspace}/a\\nb                     | {workspace}/a\\\\nb                   |
        | {workspace}evil/a                     | {workspace}evil/a                    |
        | --file={workspace}/a                  | --file={workspace}/a                 |

    @PM-09
    Scenario Outline: The mode of the call takes precedence over the tool's
      Given the call request includes {<mode>}
      When I call the tool <tool> with {"text": "{workspace}/a", "ref": "{workspace}/b"}
      Then stdout is "{\"text\":\"<text>\",\"ref\":\"<ref>\"}"

      Examples:
        | mode                   | tool   | text              | ref               |
        |                        | marked | {workspace}/a     | /workspaces/app/b |
        | "mapping": "heuristic" | marked | /workspaces/app/a | /workspaces/app/b |
        | "mapping": "none"      | marked | {workspace}/a     | {workspace}/b     |
        |                        | never  | {workspace}/a     | {workspace}/b     |
        | "mapping": "schema"    | never  | {workspace}/a     | /workspaces/app/b |
        |                        | guess  | /workspaces/app/a | /workspaces/app/b |

    @PM-13
    Scenario: A name equal only after Unicode normalisation is not mapped, and is listed
      When I call the tool marked with {"items": ["{root}/caf\u00e9/x", "{root}/cafe\u0301/x"]}
      Then /metadata/mapping/mapped/0/to is "/coffee/x"
      And /metadata/mapping/unmapped/0/path is "{root}/cafe\u0301/x"
      And /metadata/mapping/unmapped/0/reason matches "NFC"
      And /output/items is ["{root}/caf\u00e9/x", "{root}/cafe\u0301/x"]

  Rule: Invalid paths

    @PM-05 @PM-15
    Scenario Outline: A bad path in an input is refused before anything starts
      When I call the tool marked with {"<member>": <value>}
      Then the call fails with reason invalid
      And the error code is path_invalid
      And /error/errors/0/pointer is "<pointer>"
      And /metadata/mapping/errors/0/pointer is "<pointer>"
      And the error has a hint
      And no process was started

      Examples:
        | member | value                                    | pointer          |
        | ref    | "{workspace}/../x"                       | /input/ref       |
        | ref    | "../x"                                   | /input/ref       |
        | ref    | "{workspace}/\u0000"                     | /input/ref       |
        | ref    | "C:\\\\Users\\\\me\\\\a.txt"             | /input/ref       |
        | ref    | "\\\\\\\\server\\\\share"                | /input/ref       |
        | tree   | {"below": [{}, {"at": "{workspace}/.."}]} | /input/tree/below/1/at |
        | list   | "/bin:{workspace}/../x"                  | /input/list      |
        | uri    | "file://{workspace}/%2e%2e/x"            | /input/uri       |
        | uri    | "file:///C:/x"                           | /input/uri       |

    @PM-05
    Scenario: An invalid path in an output is not mapped; the others are
      When I call the tool print with {"o": {"bad": "/workspaces/app/a/../b", "good": "/workspaces/app/c"}}
      Then the call succeeds
      And /output is {"bad": "/workspaces/app/a/../b", "good": "{workspace}/c"}
      And /metadata/mapping/errors/0/pointer is "/output/bad"

    @PM-08
    Scenario: An output that is too deep is not mapped, and the report has an error
      When I call the tool deep with {}
      Then the call succeeds
      And /output/raw_output matches "^\[\[\[\["
      And /metadata/mapping/errors/0/pointer is "/output"
      And /metadata/mapping/errors/0/message matches "64"

    @PM-12
    Scenario: A result whose symlink leads outside on the host is reported and not mapped
      When I call the tool links with {}
      Then the call succeeds
      And /output is {"file": "{workspace}/out/file", "inside": "{workspace}/out/inside", "later": "{workspace}/out/later", "absolute": "/workspaces/app/out/absolute", "outside": "/workspaces/app/out/outside", "beneath": "/workspaces/app/out/folder/passwd", "same": "{root}/same/own"}
      And /metadata/mapping/errors/0/pointer is "/output/absolute"
      And /metadata/mapping/errors/1/pointer is "/output/outside"
      And /metadata/mapping/errors/2/pointer is "/output/beneath"
      And /metadata/mapping/errors/3 is absent
      And /metadata/mapping/errors/1/message matches "{workspace}/out/outside"

    @PM-11
    Scenario: Metadata about the container has container paths
      When I call the tool print with {"o": {"folder": "/workspaces/app"}}
      Then /output/folder is "{workspace}"
      And /metadata/container/workspace_folder is "/workspaces/app"
