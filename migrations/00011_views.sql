-- +goose Up

-- For people and programs that read this file: docs/reference/audit-views.md describes the columns. dray itself does not read the views.
CREATE VIEW calls AS SELECT
    i.id,
    strftime('%Y-%m-%dT%H:%M:%S', i.started_at / 1000000000, 'unixepoch') || printf('.%09dZ', i.started_at % 1000000000) AS started,
    strftime('%Y-%m-%dT%H:%M:%S', i.ended_at / 1000000000, 'unixepoch') || printf('.%09dZ', i.ended_at % 1000000000) AS ended,
    i.duration / 1000000.0 AS duration_ms,
    i.tool, i.status, i.reason, i.exit_code, i.code, i.principal, i.workspace, i.environment,
    coalesce(i.container_name, i.container) AS container,
    i.container_id, i.image, i.plan_id, i.session_id, i.labels,
    CASE WHEN json_valid(b.body) THEN coalesce(
        (SELECT group_concat(value, ' ') FROM json_each(b.body, '$.input.argv')),
        b.body ->> '$.input.command') END AS command,
    i.bytes
FROM invocations i LEFT JOIN events b ON b.seq = i.seq;

CREATE VIEW files AS SELECT
    invocation AS call,
    strftime('%Y-%m-%dT%H:%M:%S', at / 1000000000, 'unixepoch') || printf('.%09dZ', at % 1000000000) AS ended,
    environment, path, action, sha256_before, sha256_after, plan_id, principal
FROM changed_files;
