package secret

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// Input is what one attempt is to run, as it is stored.
type Input struct {
	Version    Version
	Config     json.RawMessage
	Parameters json.RawMessage // of the trigger; nil is none
	Sealed     []byte          // the version's credentials; nil is none

	// Of the run, for {{run:…}}.
	Execution   uuid.UUID
	Attempt     int
	ScheduledAt time.Time
}

// Plain tells whether there is nothing to resolve.
func (a Input) Plain() bool {
	return len(a.Sealed) == 0 && !variable(a.Config) && !variable(a.Parameters)
}

// values adds those of the run to the texts of placeholders.
func (a Input) values(texts map[string]keyring.Text) map[string]keyring.Text {
	all := map[string]keyring.Text{}
	maps.Copy(all, texts)
	for name, text := range map[string]string{
		"attempt": strconv.Itoa(a.Attempt), "executionId": a.Execution.String(), "jobId": a.Version.Job.String(),
		"scheduledAt": a.ScheduledAt.UTC().Format(time.RFC3339Nano), "tenantId": a.Version.Tenant.String(),
	} {
		all[runOpening+name] = keyring.NewText(text)
	}
	return all
}

// Ready is what an attempt runs with. It must not be stored or printed.
type Ready struct {
	Config, Parameters json.RawMessage
	// Mask takes out of what the attempt leaves behind what was put in here.
	Mask Mask
}

// Resolve puts secrets and credentials where an attempt needs them. It reads
// them anew each time and keeps none. A secret that is not there is NotFound;
// what the keys of this process do not open is Internal; a database that is
// away is Unavailable.
func (r *Resolver) Resolve(ctx context.Context, a Input) (Ready, error) {
	if a.Plain() {
		return Ready{Config: a.Config, Parameters: a.Parameters}, nil
	}
	texts, credentials, err := r.open(ctx, a)
	if err != nil {
		return Ready{}, err
	}
	ready, values := Ready{Config: a.Config, Parameters: a.Parameters}, a.values(texts)
	if len(credentials) > 0 {
		if ready.Config, err = restore(ready.Config, credentials); err != nil {
			return Ready{}, err
		}
	}
	if ready.Config, err = fill(ready.Config, values); err != nil {
		return Ready{}, err
	}
	if ready.Parameters, err = fill(ready.Parameters, values); err != nil {
		return Ready{}, err
	}
	for at, text := range credentials { // a target is sent them filled in
		credentials[at] = replace(text, values, func(s string) string { return s })
	}
	ready.Mask = newMask(masked(texts, credentials))
	return ready, nil
}

// open opens the secrets that an attempt refers to and its credentials, by place.
func (r *Resolver) open(ctx context.Context, a Input) (texts map[string]keyring.Text, credentials map[string]string, err error) {
	if len(a.Sealed) == 0 && !Refers(a.Config) && !Refers(a.Parameters) {
		return nil, nil, nil
	}
	if r == nil {
		return nil, nil, unopened("what is secret in this job", keyring.ErrNoKeys)
	}
	if credentials, err = open(r.keys, a.Version, a.Sealed); err != nil {
		return nil, nil, unopened("the credentials of this job version", err)
	}
	texts, err = r.texts(ctx, a)
	return texts, credentials, err
}

// texts are the secrets that an attempt refers to, by name.
func (r *Resolver) texts(ctx context.Context, a Input) (map[string]keyring.Text, error) {
	inConfig, _ := references("config", a.Config, nil)
	inParameters, _ := references("parameters", a.Parameters, nil)
	names := namesOf(slices.Concat(inConfig, inParameters))
	if len(names) == 0 {
		return nil, nil
	}
	sealed, err := r.read(ctx, a.Version.Tenant, names)
	if err != nil {
		return nil, err
	}
	texts := make(map[string]keyring.Text, len(sealed))
	for name, s := range sealed {
		if texts[name], err = r.keys.Open(binding(a.Version.Tenant, s.id, name), s.sealed); err != nil {
			return nil, unopened("the secret "+name, err)
		}
	}
	for _, name := range names {
		if _, ok := texts[name]; !ok {
			return nil, fault.New(fault.NotFound, fault.CodeSecretNotFound, fmt.Sprintf("there is no secret %q: create it, or take it out of the job", name))
		}
	}
	return texts, nil
}

// sealed is a secret as it is stored.
type sealed struct {
	id     uuid.UUID
	sealed []byte
}

func unopened(what string, err error) error {
	return fault.Wrap(fault.Internal, "", what+" cannot be opened here: the operator has to look at SECRETS_KEYS", err)
}

// masked are the texts that must not stand in what an attempt leaves behind.
// Of a header such as "Bearer abc" the last word is one too.
func masked(texts map[string]keyring.Text, credentials map[string]string) []keyring.Text {
	var all []keyring.Text
	for _, text := range texts {
		all = append(all, text)
	}
	for _, text := range credentials {
		all = append(all, keyring.NewText(text))
		if scheme, rest, ok := strings.Cut(text, " "); ok && slices.Contains(schemes, strings.ToLower(scheme)) {
			all = append(all, keyring.NewText(rest))
		}
	}
	return all
}
