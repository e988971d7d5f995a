package mcp

import "testing"

// The ids of another key, and made-up ones, are not sessions.
func TestSessionIDs(t *testing.T) {
	s := &signer{key: []byte("key")}
	id := s.newID()
	other := &signer{key: []byte("other")}
	if !s.signed(id) || other.signed(id) || s.signed("") || s.signed("x-y") || s.signed(id+"0") {
		t.Errorf("signed: %v %v", s.signed(id), other.signed(id))
	}
	for range maxDeleted + 10 {
		s.delete("a", s.newID())
	}
	if s.delete("a", id); !s.isDeleted("a", id) || s.isDeleted("b", id) || len(s.deleted) != maxDeleted {
		t.Errorf("%d deleted ids", len(s.deleted))
	}
}
