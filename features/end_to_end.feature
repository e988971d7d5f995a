Feature: A caller opens the files of a tool by the returned paths
  A Python tool in the project's devcontainer gets a table by its host path. It writes a report and a picture and prints their container paths. The
  caller opens both by host paths. This is the example in examples/report.

  Background:
    Given the workspace {workspace}

  @PM-01 @PM-09 @PM-14 @CA-06
  Scenario: Files written to the project are opened by their host path
    When I call the tool report with {"table": "{workspace}/sales.csv"}
    Then the call succeeds
    And stdout contains "/workspaces/app/reports/report.md"
    And /output is {"report": "{workspace}/reports/report.md", "picture": "{workspace}/reports/chart.png", "rows": 6}
    And the file at /output/report contains "Together 1040; the best month was June."
    And the picture at /output/picture shows the amounts 120, 95, 170, 210, 185, 260

  @PM-09 @SY-05 @SY-11
  Scenario: Files written outside the mounts are synced
    When I call the tool report_home with {"table": "{workspace}/sales.csv"}
    Then the call succeeds
    And stdout contains "/tmp/report/report.md"
    And /output/report matches "^{root}/home/[0-9a-f-]{36}/tmp/report/report.md$"
    And the file at /output/report contains "Together 1040; the best month was June."
    And the picture at /output/picture shows the amounts 120, 95, 170, 210, 185, 260
    And /metadata/sync/state is "complete"
    And the file at /output/picture is one of those in /metadata/sync/files, byte for byte

  @PM-05 @PM-06
  Scenario: A missing table is reported by the tool; a path with .. is refused before the start
    When I call the tool report with {"table": "/nowhere/sales.csv"}
    Then the call fails with reason exited
    And stderr contains "No such file or directory: '/nowhere/sales.csv'"
    And /metadata/mapping/unmapped/0/pointer is "/input/table"
    Given a new call request
    When I call the tool report with {"table": "{workspace}/../sales.csv"}
    Then the call fails with reason invalid
    And the error code is path_invalid
    And no process was started
