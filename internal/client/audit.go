package client

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

// AuditStats returns statistics of the calls that the filters select, in one page. The filters are
// query parameters; "by" is the key.
func (c *Client) AuditStats(ctx context.Context, filters url.Values,
) (Reply[Page[dray.Stat]], error) {
	return get[Page[dray.Stat]](ctx, c, "/v1/audit/stats", filters)
}

// AuditExport returns the calls that the filters select as JSON Lines or CSV, by the parameter
// "format". Reading fails if the daemon cannot complete the export. The caller closes it.
func (c *Client) AuditExport(ctx context.Context, filters url.Values) (io.ReadCloser, error) {
	resp, err := c.send(ctx, http.MethodGet, "/v1/audit/export?"+filters.Encode(), nil, "*/*")
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// CallStream is a stream of calls as they end, or begin and end. It must not be used concurrently.
type CallStream struct {
	// Seq is the number of the last event that was read: a new stream continues after it.
	Seq  int64
	body io.ReadCloser
	dec  *jsontext.Decoder
}

// AuditFollow returns the calls that the filters select as they end, and with the filter "begun" as
// they begin: those from now on if after is 0, else those after that event. Only the first stream
// of a client starts a daemon.
func (c *Client) AuditFollow(ctx context.Context, filters url.Values, after int64,
) (*CallStream, error) {
	query := maps.Clone(filters)
	query.Set("follow", "1")
	if after > 0 {
		query.Set("after", strconv.FormatInt(after, 10))
		c.dialer.start = nil
	}
	//nolint:bodyclose // Close closes it
	resp, err := c.send(ctx, http.MethodGet, "/v1/audit/export?"+query.Encode(), nil, ndjson)
	if err != nil {
		return nil, err
	}
	s := &CallStream{body: resp.Body, dec: jsontext.NewDecoder(resp.Body)}
	if s.Seq, err = strconv.ParseInt(resp.Header.Get(auditSeqHeader), 10, 64); err != nil {
		return nil, errors.Join(disconnectedError(err), s.Close())
	}
	return s, nil
}

// auditSeqHeader contains the number of the event after which calls are followed.
const auditSeqHeader = "Dray-Audit-Seq"

// Next blocks until the next call has ended or begun, and returns it with its line. It fails when
// the daemon ends the stream.
func (s *CallStream) Next() (dray.Record, jsontext.Value, error) {
	var line struct {
		Seq int64 `json:"seq"`
		dray.Record
	}
	value, err := s.dec.ReadValue()
	if err == nil {
		value = value.Clone()
		err = json.Unmarshal(value, &line)
	}
	if err != nil {
		return dray.Record{}, nil, disconnectedError(err)
	}
	s.Seq = line.Seq
	return line.Record, value, nil
}

// Close ends the stream.
func (s *CallStream) Close() error { return s.body.Close() }
