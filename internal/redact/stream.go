package redact

import "github.com/dray-dev/dray"

// Stream returns a filter that passes a text on with its secrets replaced. It holds back the end of
// a text that may be the beginning of a secret: at most about 24 KiB, and none if no secret can
// begin there. Flush decides about that as if the text ended; what follows is a new text.
func (r *Redactor) Stream(to dray.RedactedWriter) dray.TextFilter {
	return &stream{redactor: r, to: to, scanner: newScanner(r.finders), before: '\n'}
}

type stream struct {
	redactor *Redactor
	to       dray.RedactedWriter
	scanner  *scanner
	held     []byte
	before   byte // the last byte that is not held
	replaced int64
}

// Write passes on what is decided.
func (s *stream) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	all := p
	if len(s.held) > 0 {
		s.held = append(s.held, p...)
		all = s.held
	}
	rest, err := s.pass(all, false)
	s.held = append(s.held[:0], rest...)
	return len(p), err
}

// Buffered returns the number of bytes that are held.
func (s *stream) Buffered() int { return len(s.held) }

// Flush passes on what is held.
func (s *stream) Flush() error {
	if len(s.held) == 0 {
		return nil
	}
	_, err := s.pass(s.held, true)
	s.held = s.held[:0]
	return err
}

// Close ends the text.
func (s *stream) Close() error { return s.Flush() }

// Replaced returns the number of marks.
func (s *stream) Replaced() int64 { return s.replaced }

// pass passes on the decided beginning of b and returns the rest.
func (s *stream) pass(b []byte, final bool) ([]byte, error) {
	n := s.scanner.scan(text{bytes: b, before: s.before, final: final})
	if n == 0 {
		return b, nil
	}
	done := 0
	for _, secret := range s.scanner.take(n) {
		if err := s.plain(b[done:secret.start]); err != nil {
			return nil, err
		}
		mark := s.redactor.key.mark(b[secret.start:secret.end])
		if err := s.to.WriteMark(mark, int64(secret.end-secret.start)); err != nil {
			return nil, err
		}
		s.replaced++
		done = secret.end
	}
	s.before = b[n-1]
	return b[n:], s.plain(b[done:n])
}

func (s *stream) plain(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	_, err := s.to.Write(b)
	return err
}
