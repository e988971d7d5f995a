Feature: What tools print is kept, bounded, and told exactly
  The first bytes of each stream are kept in files, the rest is counted. Retention removes what is old and what takes too much room; the trail
  keeps what it says of them. Output that cannot be kept ends its tool.

  Rule: Reading it again

    @CA-01 @CA-03
    Scenario: While the call runs ranges are of what is kept so far, and afterwards of all that is
      Given a daemon with the configuration
        """
        host: {roots: [{root}]}
        limits: {capture: 100000}
        """
      And the call also says {"cwd": "{root}", "environment": "host"}
      And the tool shell has printed "ready" when called with {"command": "echo ready; while [ ! -e more ]; do sleep 0.01; done; rm more; head -c 200000 /dev/zero | tr '\\0' x; echo flooded >&2; sleep 4721"}
      Then the bytes 0-99 of its stdout are "ready\n"
      And the bytes 3- of its stdout are "dy\n"
      When the file {root}/more is made
      Then in time the bytes 99998- of its stdout are "xx"
      When the call is cancelled
      Then the call has failed with the reason cancelled
      And /stdout/total_bytes is 200006
      And /stdout/kept_bytes is 100000
      And /stdout/truncated is true
      And the bytes 0-6 of its stdout are "ready\nx"
      And the bytes -3 of its stdout are "xxx"
      And the bytes 100000- of its stdout are refused with 416
      And the bytes 0- of its stderr are "flooded\n"

    @CA-03
    Scenario: Output that its record shows whole has ranges, too
      Given a daemon with the configuration
        """
        host: {roots: [{root}]}
        """
      And the call also says {"cwd": "{root}", "environment": "host"}
      When the tool exec is called with {"argv": ["printf", "a\\nü€\\n"]}
      Then the call has succeeded
      And the bytes 2-3 of its stdout are "ü"
      And the bytes -4 of its stdout are "€\n"
      And the bytes 0- of its stderr are ""

    @CA-02
    Scenario: Views are cut between characters, whatever the locale
      Given a daemon with the configuration
        """
        host: {roots: [{root}]}
        limits: {view: 10B}
        """
      And the call also says {"cwd": "{root}", "environment": "host", "env": {"LC_ALL": "C"}}
      When the tool shell is called with {"command": "for i in 1 2 3 4 5 6 7 8 9; do printf €; done"}
      Then /stdout/text matches "^€€€\n\[... 9 bytes omitted, read them with id [0-9a-f-]{36} ... \]\n€€€$"
      And /stdout/head_bytes is 9
      And /stdout/tail_bytes is 9

  Rule: Partial output survives every end

    @CA-04 @EX-12
    Scenario Outline: What was printed before the end is there
      Given a daemon with the configuration
        """
        host: {roots: [{root}]}
        """
      And the call also says {"cwd": "{root}", "environment": "host", <limit>}
      When the tool shell is called with {"command": "echo out; echo err >&2; <command>"}
      Then the call has failed with the reason <reason>
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
    Scenario: Beyond the room for all of them the oldest goes, and the trail keeps what it says of it
      Given a daemon with the configuration
        """
        host: {roots: [{root}]}
        limits: {captures_disk: 300KiB}
        """
      And the call also says {"cwd": "{root}", "environment": "host"}
      When the tool shell is called with {"command": "head -c 200000 /dev/zero"}
      Then the call has succeeded
      And the bytes -2 of its stdout are "\u0000\u0000"
      When the same is called again, and the first answer kept
      Then asking for the call again gives the same
      And /stdout/total_bytes is 200000
      And /stdout/sha256 matches "^4cbbd9be0cba68583575"
      When its stdout is asked for
      Then it is refused with 404 and not_found
      And the error says "retention has removed it"
      And the error has a hint

    @CA-01
    Scenario: What is older than output is kept goes by itself
      Given a daemon with the configuration
        """
        host: {roots: [{root}]}
        limits: {captures_keep: 1s}
        """
      And the call also says {"cwd": "{root}", "environment": "host"}
      When the tool shell is called with {"command": "head -c 200000 /dev/zero"}
      Then the call has succeeded
      And in time the bytes 0- of its stdout are refused with 404
      And asking for the call again gives the same

  Rule: Output that cannot be kept

    @CA-01 @EX-12
    Scenario: On a full disk the tool is ended with a typed error, and the trail goes on
      Given a daemon on a captures disk of 1m with the configuration
        """
        host: {roots: [{root}]}
        """
      And the call also says {"cwd": "{root}", "environment": "host"}
      When the tool shell is called with {"command": "echo begun; cat /dev/zero"}
      Then the call has failed with the reason output_limit
      And the error is disk_full
      And the error has a hint
      And /exit_code is null
      And /metadata/kill/survivors is 0
      And /stdout/truncated is true
      And /stdout/kept_bytes is above 500000
      And the bytes 0-5 of its stdout are "begun\n"
      And the trail says of the call that reason is "output_limit"
      And the trail has the events "begun ended" of the call
      When the tool exec is called with {"argv": ["echo", "small output needs no disk"]}
      Then the call has succeeded

    @CA-01 @EX-12
    Scenario: A call that runs alone and prints more than all may is ended, too
      Given a daemon with the configuration
        """
        host: {roots: [{root}]}
        limits: {captures_disk: 1MiB}
        """
      And the call also says {"cwd": "{root}", "environment": "host"}
      When the tool shell is called with {"command": "cat /dev/zero"}
      Then the call has failed with the reason output_limit
      And the error is limit_exceeded
      And the error says "limits.captures_disk"
      And the error has a hint
      And /stdout/kept_bytes is below 1048577
      And the trail has the events "begun ended" of the call

  Rule: Output as JSON

    @CA-06 @CA-08
    Scenario Outline: What stdout becomes
      Given a daemon with the configuration
        """
        host: {roots: [{root}]}
        limits: {view: 2KiB}
        tools: [{name: says, argv: [sh, -c, 'cat >/dev/null; <prints>'], output: json}]
        """
      And the call also says {"cwd": "{root}", "environment": "host"}
      When the tool says is called with {}
      Then the call has <ends>
      And /output is <output>

      Examples:
        | prints                                         | ends                               | output |
        | true                                           | succeeded                          | {} |
        | exit 3                                         | failed with the reason exited      | {} |
        | echo "[1, 2]"                                  | succeeded                          | {"result": [1, 2]} |
        | printf "\\357\\273\\277{}"                     | succeeded                          | {} |
        | echo "{\\"n\\": 9007199254740993}"             | succeeded                          | {"n": 9007199254740993} |
        | echo NaN                                       | succeeded                          | {"raw_output": "NaN", "parse_error": {"message": "invalid character 'N' at start of value", "offset": 0}} |
        | echo "{\\"n\\": 1}"; kill -9 $$                | failed with the reason signalled   | {"n": 1} |
        | echo "{\\"status\\": \\"succeeded\\", \\"exit_code\\": 0, \\"metadata\\": {}}"; exit 4 | failed with the reason exited | {"status": "succeeded", "exit_code": 0, "metadata": {}} |
        | echo "{\\"raw_output\\": 1, \\"result\\": 2}"  | succeeded                          | {"raw_output": 1, "result": 2} |

    @CA-06
    Scenario: What does not parse is shown as the view is, with the cause and where it lies
      Given a daemon with the configuration
        """
        host: {roots: [{root}]}
        limits: {view: 10B}
        tools: [{name: says, argv: [sh, -c, 'cat >/dev/null; printf "{%0100d}" 0'], output: json}]
        """
      And the call also says {"cwd": "{root}", "environment": "host"}
      When the tool says is called with {}
      Then the call has succeeded
      And /output/raw_output matches "^\{0{9}\n\[... 82 bytes omitted, read them with id [0-9a-f-]{36} ... \]\n0{9}\}$"
      And /output/parse_error/offset is 1

    @CA-06
    Scenario: An output that is not kept to its end is not parsed
      Given a daemon with the configuration
        """
        host: {roots: [{root}]}
        limits: {capture: 2B}
        tools: [{name: says, argv: [sh, -c, 'cat >/dev/null; echo "{}"'], output: json}]
        """
      And the call also says {"cwd": "{root}", "environment": "host"}
      When the tool says is called with {}
      Then the call has succeeded
      And /stdout/truncated is true
      And /output/raw_output matches "^\{\}$"
      And /output/parse_error/offset is 2
