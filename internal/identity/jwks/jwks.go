// Package jwks keeps the public keys of an auth service, read from its JWKS
// address (RFC 7517).
//
// It owns when the address is asked, how much of an answer is read, and which
// of the keys in it are fit to verify a token. It refuses to look at tokens,
// and any key that a token brings along or points to: a key is found by its id
// in what the configured address answered, and nowhere else.
package jwks

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
)

const (
	// patience bounds one request to the address.
	patience = 3 * time.Second
	// maxAnswer bounds an answer in bytes, and maxKeys the keys in it.
	maxAnswer, maxKeys = 256 << 10, 100
	// RefreshEvery is how often to call Refresh: how long a key that the auth
	// service withdrew is still believed.
	RefreshEvery = 5 * time.Minute
	// minDistance keeps tokens with made-up key ids from turning this process
	// into a load on the auth service.
	minDistance = 10 * time.Second
	// maxStale is how long keys are believed while the address is away. Nobody
	// gets a new token from an auth service that is down, so this only has to
	// outlive the tokens that are about.
	maxStale = 24 * time.Hour
)

// saneID is what a key's id may be. It is only ever looked up in a map; the
// bound is for what tokens make us compare and log.
var saneID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Config says where the keys are.
type Config struct {
	URL string // http or https; redirects are not followed
	Log *slog.Logger
	// Transport carries the requests; nil means one of its own.
	Transport http.RoundTripper
}

// Set is the keys of one address. Its methods may be called concurrently.
type Set struct {
	url    string
	log    *slog.Logger
	client *http.Client
	asking chan struct{} // held by who asks the address

	mu    sync.RWMutex
	keys  map[string]crypto.PublicKey // nil until the first answer
	read  clock.Mark                  // when keys was read
	tried clock.Mark                  // when the address was asked last
	began bool                        // tried is set
	away  error                       // why the last try failed
}

// New makes an empty set; the first Key or Refresh fills it.
func New(c Config) *Set {
	transport := c.Transport
	if transport == nil {
		transport = &http.Transport{
			TLSHandshakeTimeout: patience, ResponseHeaderTimeout: patience, MaxResponseHeaderBytes: 64 << 10,
			DisableKeepAlives: true, // it is asked every few minutes
		}
	}
	return &Set{
		url: c.URL, log: c.Log, asking: make(chan struct{}, 1),
		client: &http.Client{
			Timeout: patience, Transport: transport,
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return errors.New("the address redirects; name the one that it leads to")
			},
		},
	}
}

// Refresh reads the keys once. A failure keeps those that are known.
func (s *Set) Refresh(ctx context.Context) error {
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
		return s.ask(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Key is the public key with an id, which is empty for a token that names
// none: then there must be one key. An id that is not known makes the set ask
// again, at most once in ten seconds, so that a new key is believed at once.
// The error is Unauthenticated, or Unavailable where the auth service has to
// be asked and does not answer.
func (s *Set) Key(ctx context.Context, id string) (crypto.PublicKey, error) {
	if id != "" && !saneID.MatchString(id) {
		return nil, unknown()
	}
	if key, ok := s.find(id); ok {
		return key, nil
	}
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the keys of the auth service: %w", ctx.Err())
	}
	if key, ok := s.find(id); ok { // somebody asked while this one waited
		return key, nil
	}
	if s.due() {
		if err := s.ask(ctx); err != nil {
			s.log.WarnContext(ctx, "the keys of the auth service could not be read", "error", err)
		}
	}
	if key, ok := s.find(id); ok {
		return key, nil
	}
	if cause := s.failure(); cause != nil {
		return nil, fault.Wrap(fault.Unavailable, "", "the keys of the auth service cannot be read at present", cause)
	}
	return nil, unknown()
}

func unknown() error {
	return fault.New(fault.Unauthenticated, fault.CodeUnauthorized, "the token names a key that the auth service does not have")
}

func (s *Set) find(id string) (crypto.PublicKey, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.keys == nil || s.read.Elapsed() > maxStale {
		return nil, false
	}
	if id == "" && len(s.keys) == 1 {
		for _, only := range s.keys {
			return only, true
		}
	}
	key, ok := s.keys[id]
	return key, ok && id != ""
}

// due says that the address may be asked because of a key that is not known.
func (s *Set) due() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return !s.began || s.tried.Elapsed() >= minDistance
}

func (s *Set) failure() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.away
}

// ask reads the address. The caller's own end does not end it: others wait for
// the same answer, and patience bounds it.
func (s *Set) ask(ctx context.Context) error {
	keys, err := s.fetch(context.WithoutCancel(ctx))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried, s.began = clock.Start(), true
	if s.away = err; err == nil {
		s.keys, s.read = keys, clock.Start()
	}
	return err
}

func (s *Set) fetch(ctx context.Context) (map[string]crypto.PublicKey, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, errors.New("the address does not parse")
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	answer, err := s.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the auth service: %w", err)
	}
	defer answer.Body.Close() // read only
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the auth service answers %d", answer.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the auth service's answer: %w", err)
	case len(text) > maxAnswer:
		return nil, fmt.Errorf("the auth service's answer has more than %d bytes", maxAnswer)
	}
	return parse(text)
}
