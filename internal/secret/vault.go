package secret

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// Vault keeps what is secret in the definitions of jobs. Without keys it
// refuses credentials that stand in a definition.
type Vault struct{ keys *keyring.Ring }

// NewVault makes a vault; nil keys are none.
func NewVault(keys *keyring.Ring) *Vault { return &Vault{keys: keys} }

// Version names a version of a job.
type Version struct {
	Tenant, Job uuid.UUID
	Number      int
}

// binding is what the credentials of a version are bound to.
func (v Version) binding() keyring.Binding {
	return keyring.Binding{Tenant: v.Tenant, Object: "job", ID: v.Job, Field: fmt.Sprintf("config@%d", v.Number)}
}

// Protected is a job's configuration as it may be stored and shown.
type Protected struct {
	// Config has Masked in the place of each credential.
	Config json.RawMessage
	// Names are the secrets that it refers to, in order; never nil.
	Names []string

	uses        []use
	credentials []found
	faults      []fault.Field
}

// protect reads a configuration, and lists what is wrong without looking
// anything up. Masked keeps a credential of an earlier version, so in a fresh
// definition it is a fault.
func (v *Vault) protect(config json.RawMessage, fresh bool) Protected {
	var p Protected
	p.uses, p.faults = references("config", config, holders)
	p.Names = namesOf(p.uses)
	p.Config, p.credentials = split(config)
	for _, c := range p.credentials {
		switch {
		case c.kept && fresh:
			p.refuse(c, "masked", "is *** where nothing is stored yet; give the value itself, or {{secret:name}}")
		case v.keys.Current() == "":
			p.refuse(c, "credential", "holds a credential, which is stored encrypted only, and the operator has not configured SECRETS_KEYS")
		}
	}
	return p
}

func (p *Protected) refuse(c found, rule, message string) {
	p.faults = append(p.faults, fault.Field{Path: "config." + c.path, Rule: rule, Message: message})
}

// unknown notes the secrets that are named and not there.
func (p *Protected) unknown(known []string) {
	for _, u := range p.uses {
		if !slices.Contains(known, u.name) {
			p.faults = append(p.faults, fault.Field{Path: u.path, Rule: "exists", Message: fmt.Sprintf("there is no secret %q", u.name)})
		}
	}
}

// keeps tells whether something is to be taken over.
func (p *Protected) keeps() bool {
	return slices.ContainsFunc(p.credentials, func(c found) bool { return c.kept })
}

// New tells whether a credential is given in full. One that is the same as before counts:
// to tell would be to confirm a guess.
func (p *Protected) New() bool {
	return slices.ContainsFunc(p.credentials, func(c found) bool { return !c.kept })
}

// keep takes over the credentials that Masked stands for from those of the
// version before.
func (p *Protected) keep(before map[string]string, sameTarget bool) {
	for i, c := range p.credentials {
		if !c.kept {
			continue
		}
		text, ok := before[c.key]
		switch {
		case !ok:
			p.refuse(c, "masked", "is *** where nothing is stored; give the value itself, or {{secret:name}}")
		case !sameTarget:
			p.refuse(c, "masked", "is ***, and the target (the URL's scheme, host or port, or the function) is another; give the value again, so that it goes where it is meant to")
		default:
			p.credentials[i].text = keyring.NewText(text)
		}
	}
}

// wrong is the refusal of what has faults; nil without any.
func (p *Protected) wrong() error {
	if len(p.faults) == 0 {
		return nil
	}
	return fault.Wrong(fault.CodeInvalidJobConfig, p.faults...)
}

// seal puts the credentials into one envelope; nil where there are none.
func (v *Vault) seal(of Version, p Protected) ([]byte, error) {
	if len(p.credentials) == 0 {
		return nil, nil
	}
	texts := make(map[string]string, len(p.credentials))
	for _, c := range p.credentials {
		texts[c.key] = c.text.Reveal()
	}
	raw, err := json.Marshal(texts)
	if err != nil {
		return nil, fmt.Errorf("write credentials: %w", err)
	}
	return v.keys.Seal(of.binding(), keyring.NewText(string(raw)))
}

// open reads the credentials of a version by the keys of their places.
func open(keys *keyring.Ring, of Version, sealed []byte) (map[string]string, error) {
	if len(sealed) == 0 {
		return nil, nil
	}
	raw, err := keys.Open(of.binding(), sealed)
	if err != nil {
		return nil, err
	}
	var texts map[string]string
	if err := json.Unmarshal([]byte(raw.Reveal()), &texts); err != nil {
		return nil, keyring.ErrNotOpened // the parser's text may repeat a part
	}
	return texts, nil
}
