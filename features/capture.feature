Feature: Captured output
  The first bytes of each stream are captured in files, the rest is counted. Retention removes old captures and those beyond the disk limit; their
  records stay. Output that cannot be captured stops its tool.

  Rule: Reading captured output

    @CA-01 @CA-03
    Scenario: While the call runs, ranges refer to the output captured so far
      Given a daemon with the configuration
        """
        host: {roots: [{root}]}
        limits: {capture: 100000}
        """
      And the call request includes {"cwd": "{root}", "environment": "host"}
      And a running call of shell has printed "ready", with {"command": "echo ready; while [ ! -e more ]; do sleep 0.01; done; rm more; head -c 200000 /dev/zero | tr '\\0' x; echo flooded >&2; sleep 4721"}
      Then the bytes 0-99 of its stdout are "ready\n"
      And the bytes 3- of its stdout are "dy\n"
      When the file {root}/more is created
      Then eventually the bytes 99998- of its stdout are "xx"
      And eventually the bytes 0- of its stderr are "flooded\n"
      When I cancel the call
      Then the call fails with reason cancelled
      And /stdout/total_bytes is 200006
      And /stdout/kept_bytes is 100000
      And /stdout/truncated is true
      And the bytes 0-6 of its stdout are "ready\nx"
      And the bytes -3 of its stdout are "xxx"
      And the request for the bytes 100000- of its stdout fails with status 416

    @CA-03
    Scenario: Ranges of output that is complete in the record
      Given a daemon with the configuration
        """
        host: {roots: [{root}]}
        """
      And the call request includes {"cwd": "{root}", "environment": "host"}
      When I call the tool exec with {"argv": ["printf", "a\\nü€\\n"]}
      Then the call succeeds
      And the bytes 2-3 of its stdout are "ü"
      And the bytes -4 of its stdout are "€\n"
      And the bytes 0- of its stderr are ""

    @CA-02
    Scenario: Summaries are cut between characters in every locale
      Given a daemon with the configuration
        """
        host: {roots: [{root}]}
        limits: {view: 10B}
        """
      And the call request includes {"cwd": "{root}", "environment": "host", "env": {"LC_ALL": "C"}}
      When I call the tool shell with {"command": "for i in 1 2 3 4 5 6 7 8 9; do printf €; done"}
      Then /stdout/text matches "^€€€\n\[... 9 bytes omitted, read them with id [0-9a-f-]{36} ... \]\n€€€$"
      And /stdout/head_bytes is 9
      And /stdout/tail_bytes is 9

  Rule: Partial output survives every end

    @CA-04 @EX-12
    Scenario Outline: Output printed before the end is captured
      Given a daemon with the configuration
        """
        host: {roots: [{root}]}
        """
      And the call request includes {"cwd": "{root}", "environment": "host", <limit>}
      When I call the tool shell with {"command": "echo out; echo err >&2; <command>"}
      Then the call fails with reason <reason>
      And stdout is "out\n"
      And stderr is "err\n"

      Examples:
        | limit                       | command    | reason       |
        | "timeout_seconds": 0.3      | sleep 4722 | timeout      |
        | "idle_timeout_seconds": 0.3 | sleep 4722 | idle_timeout |
        | "timeout_seconds": 60       | exit 3     | exited       |
        | "timeout_seconds": 60       | kill -9 $$ | signalled    |

  Rule: Retention

    @CA-01
    Scenario: Beyond the disk limit the oldest captures are removed, and their records stay
      Given a daemon with the configuration
        """
        host: {roots: [{root}]}
        limits: {captures_disk: 300KiB}
        """
      And the call request includes {"cwd": "{root}", "environment": "host"}
      When I call the tool shell with {"command": "head -c 200000 /dev/zero"}
      Then the call succeeds
      And the bytes -2 of its stdout are "\u0000\u0000"
      When I repeat the call and remember its first result
      Then requesting the call again returns the same
      And /stdout/total_bytes is 200000
      And /stdout/sha256 matches "^4cbbd9be0cba68583575"
      When I request its stdout
      Then the request fails with status 404 and code not_found
      And the error message contains "removed by retention"
      And the error has a hint

    @CA-01
    Scenario: Captures older than the retention time are removed
      Given a daemon with the configuration
        """
        host: {roots: [{root}]}
        limits: {captures_keep: 1s}
        """
      And the call request includes {"cwd": "{root}", "environment": "host"}
      When I call the tool shell with {"command": "head -c 200000 /dev/zero"}
      Then the call succeeds
      And eventually the request for the bytes 0- of its stdout fails with status 404
      And requesting the call again returns the same

  Rule: Output that cannot be captured

    @CA-01 @EX-12
    Scenario: On a full disk the tool is stopped with a code, and the audit log continues
      Given a daemon on a captures disk of 1m with the configuration
        """
        host: {roots: [{root}]}
        """
      And the call request includes {"cwd": "{root}", "environment": "host"}
      When I call the tool shell with {"command": "echo begun; cat /dev/zero"}
      Then the call fails with reason output_limit
      And the error code is disk_full
      And the error has a hint
      And /exit_code is null
      And /metadata/kill/survivors is 0
      And /stdout/truncated is true
      And /stdout/kept_bytes is above 500000
      And the bytes 0-5 of its stdout are "begun\n"
      And the audit log records reason "output_limit" for the call
      And the audit log contains the events "begun ended" of the call
      When I call the tool exec with {"argv": ["echo", "small output needs no disk"]}
      Then the call succeeds

    @CA-01 @EX-12
    Scenario: A single call that exceeds the disk limit is stopped
      Given a daemon with the configuration
        """
        host: {roots: [{root}]}
        limits: {captures_disk: 1MiB}
        """
      And the call request includes {"cwd": "{root}", "environment": "host"}
      When I call the tool shell with {"command": "cat /dev/zero"}
      Then the call fails with reason output_limit
      And the error code is limit_exceeded
      And the error message contains "limits.captures_disk"
      And the error has a hint
      And /stdout/kept_bytes is below 1048577
      And the audit log contains the events "begun ended" of the call

  Rule: Output as JSON

    @CA-06 @CA-08
    Scenario Outline: stdout is parsed according to the tool's output mode
      Given a daemon with the configuration
        """
        host: {roots: [{root}]}
        limits: {view: 2KiB}
        tools: [{name: says, argv: [sh, -c, 'cat >/dev/null; <prints>'], output: json}]
        """
      And the call request includes {"cwd": "{root}", "environment": "host"}
      When I call the tool says with {}
      Then the call <ends>
      And /output is <output>

      Examples:
        | prints                                         | ends                               | output |
        | true                                           | succeeds                           | {} |
        | exit 3                                         | fails with reason exited      | {} |
        | echo "[1, 2]"                                  | succeeds                           | {"result": [1, 2]} |
        | printf "\\357\\273\\277{}"                     | succeeds                           | {} |
        | echo "{\\"n\\": 9007199254740993}"             | succeeds                           | {"n": 9007199254740993} |
        | echo NaN                                       | succeeds                           | {"raw_output": "NaN", "parse_error": {"message": "invalid character 'N' at start of value", "offset": 0}} |
        | echo "{\\"n\\": 1}"; kill -9 $$                | fails with reason signalled   | {"n": 1} |
        | echo "{\\"status\\": \\"succeeded\\", \\"exit_code\\": 0, \\"metadata\\": {}}"; exit 4 | fails with reason exited | {"status": "succeeded", "exit_code": 0, "metadata": {}} |
        | echo "{\\"raw_output\\": 1, \\"result\\": 2}"  | succeeds                           | {"raw_output": 1, "result": 2} |

    @CA-06
    Scenario: Invalid JSON output is returned with the cause and its offset
      Given a daemon with the configuration
        """
        host: {roots: [{root}]}
        limits: {view: 10B}
        tools: [{name: says, argv: [sh, -c, 'cat >/dev/null; printf "{%0100d}" 0'], output: json}]
        """
      And the call request includes {"cwd": "{root}", "environment": "host"}
      When I call the tool says with {}
      Then the call succeeds
      And /output/raw_output matches "^\{0{9}\n\[... 82 bytes omitted, read them with id [0-9a-f-]{36} ... \]\n0{9}\}$"
      And /output/parse_error/offset is 1

    @CA-06
    Scenario: A truncated output is not parsed
      Given a daemon with the configuration
        """
        host: {roots: [{root}]}
        limits: {capture: 2B}
        tools: [{name: says, argv: [sh, -c, 'cat >/dev/null; echo "{}"'], output: json}]
        """
      And the call request includes {"cwd": "{root}", "environment": "host"}
      When I call the tool says with {}
      Then the call succeeds
      And /stdout/truncated is true
      And /output/raw_output matches "^\{\}$"
      And /output/parse_error/offset is 2
