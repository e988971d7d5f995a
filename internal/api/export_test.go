package api

import "context"

// AsPrincipal makes a context in which a request comes from somebody.
func AsPrincipal(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, connKey{}, &problemConn{principal: who})
}
