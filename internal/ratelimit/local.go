package ratelimit

import (
	"hash/maphash"
	"time"
)

// local is a bucket of this process.
type local struct {
	full    time.Duration // when it is full again
	refused time.Duration // until when the last refusal holds
	unpaid  time.Duration // what was given that the shared bucket does not know of
	ahead   ahead         // what the shared bucket knows of and was not given yet
}

// idle says that a bucket is as good as a new one.
func (l *local) idle(now time.Duration) bool {
	return l.full <= now && l.refused <= now && l.ahead.idle(now)
}

// kind holds the buckets of one kind, so that one kind cannot push out another:
// anybody can make addresses fail, and only a tenant's owner can name the tenant.
//
// An active bucket is never forgotten. At maxBuckets active ones, further names
// share spare buckets: their limit comes early, and nobody's limit goes away.
type kind struct {
	own    map[string]*local
	spares []local // made when they are needed
	seed   maphash.Seed
}

// find returns the bucket of a name, a new one where there is none yet.
func (k *kind) find(name string, now time.Duration) *local {
	if found, ok := k.own[name]; ok {
		return found
	}
	k.forget(now)
	if len(k.own) >= maxBuckets {
		return k.spare(name)
	}
	made := &local{}
	k.own[name] = made
	return made
}

// forget drops idle buckets among a few that the map happens to begin with. Each
// new bucket pays for a few old ones, so no request pays for all.
func (k *kind) forget(now time.Duration) {
	seen := 0
	for name, one := range k.own {
		if one.idle(now) {
			delete(k.own, name)
		}
		if seen++; seen == evictionSample {
			return
		}
	}
}

func (k *kind) spare(name string) *local {
	if k.spares == nil {
		k.spares, k.seed = make([]local, spareBuckets), maphash.MakeSeed()
	}
	return &k.spares[maphash.String(k.seed, name)%spareBuckets]
}
