package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// shards is how many chains a tenant's record is made of: a change takes the
// first that no other change holds.
const shards = 8

// Link is one entry of a shard: its number and its hash, which covers all
// entries up to it. Number 0 is what the first entry follows.
type Link struct {
	Shard int
	Seq   int64
	Hash  []byte
}

// String writes a link as ParseLink reads it: shard, number and hash.
func (l Link) String() string { return fmt.Sprintf("%d.%d.%x", l.Shard, l.Seq, l.Hash) }

// ParseLink reads what String wrote of an entry.
func ParseLink(text string) (Link, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return Link{}, errLink
	}
	shard, err1 := strconv.ParseUint(parts[0], 10, 8)
	seq, err2 := strconv.ParseInt(parts[1], 10, 64)
	hash, err3 := hex.DecodeString(parts[2])
	if err1 != nil || err2 != nil || err3 != nil || shard >= shards || seq < 1 || len(hash) != sha256.Size {
		return Link{}, errLink
	}
	return Link{Shard: int(shard), Seq: seq, Hash: hash}, nil
}

// is says whether the record of an anchor, as the log has it, is of this link.
func (l Link) is(record string) bool {
	var recorded struct {
		Seq  int64
		Hash string
	}
	err := json.Unmarshal([]byte(record), &recorded)
	return err == nil && recorded.Seq == l.Seq && recorded.Hash == fmt.Sprintf("\\x%x", l.Hash)
}

var errLink = errors.New("is not an anchor: shard, number and hash of an entry, separated by points")

// Problem is where a chain does not hold.
type Problem struct {
	Seq int64
	// Kind is "edited" (an entry is not what was written), "missing" (entries
	// are gone, or stand elsewhere), "cut" (the end is gone), "added" (there are
	// entries that no change made), "anchor" (the chain is another one than
	// the one that was anchored), or "removed" (the beginning is gone, and the log
	// does not say that retention removed it).
	Kind    string
	Message string
}

// Report is what a verification of one shard found.
type Report struct {
	Checked int
	// Last is the last link that holds, and so where a next verification begins.
	Last Link
	// Head is the chain's end, as the database has it.
	Head Link
	// Complete says that the chain was followed to its end.
	Complete bool
	Problem  *Problem // nil where everything that was checked holds
}

// entry is a stored row with all that its hash covers.
type entry struct {
	Entry
	tenant        uuid.UUID
	before, after *string
	previous      []byte
}

// hash computes what the trigger of the changed table did: see record_change
// in the migrations.
func (e entry) hash() []byte {
	var framed strings.Builder
	part := func(text string) {
		framed.WriteString(strconv.Itoa(len(text)))
		framed.WriteByte(':')
		framed.WriteString(text)
	}
	for _, text := range []string{
		e.tenant.String(), strconv.Itoa(e.Shard), strconv.FormatInt(e.Seq, 10), strconv.FormatInt(e.At.UnixMicro(), 10), e.ActorKind, e.Actor,
		e.Address, e.RequestID, e.Action, e.ObjectType, e.ObjectID, e.Change,
	} {
		part(text)
	}
	for _, text := range []*string{e.before, e.after} {
		if text == nil {
			framed.WriteByte('-')
		} else {
			part(*text)
		}
	}
	sum := sha256.Sum256(append(bytes.Clone(e.previous), framed.String()...))
	return sum[:]
}

// follow checks the entries after a link, which are in order. Where the link
// has a number and its entry is kept, the first of them is the link itself.
func follow(from Link, kept bool, entries []entry) (last Link, checked int, problem *Problem) {
	last = from
	if from.Seq == 0 {
		last.Hash = make([]byte, sha256.Size)
	}
	for i, e := range entries {
		switch {
		case kept && i == 0 && (e.Seq != from.Seq || !bytes.Equal(e.Hash, from.Hash)):
			return last, checked, &Problem{from.Seq, "anchor", fmt.Sprintf("entry %d is not the one that was anchored", from.Seq)}
		case kept && i == 0: // its predecessor is vouched for by the anchor
		case e.Seq != last.Seq+1:
			return last, checked, &Problem{last.Seq + 1, "missing", fmt.Sprintf("entry %d is followed by %d", last.Seq, e.Seq)}
		case !bytes.Equal(e.previous, last.Hash):
			return last, checked, &Problem{e.Seq, "missing", fmt.Sprintf("entry %d does not follow entry %d as it is", e.Seq, last.Seq)}
		}
		if !bytes.Equal(e.hash(), e.Hash) {
			return last, checked, &Problem{e.Seq, "edited", fmt.Sprintf("entry %d is not what was written", e.Seq)}
		}
		last = Link{Shard: from.Shard, Seq: e.Seq, Hash: e.Hash}
		checked++
	}
	return last, checked, nil
}

// ended says whether the chain ends where its head says, once there are no
// more entries after last.
func ended(last, head Link) *Problem {
	switch {
	case last.Seq < head.Seq:
		return &Problem{last.Seq + 1, "cut", fmt.Sprintf("the chain ends at entry %d and had %d", last.Seq, head.Seq)}
	case last.Seq > head.Seq:
		return &Problem{head.Seq + 1, "added", fmt.Sprintf("there are entries after %d, where the chain ends", head.Seq)}
	case last.Seq > 0 && !bytes.Equal(last.Hash, head.Hash):
		return &Problem{last.Seq, "edited", fmt.Sprintf("entry %d is not the end that was written", last.Seq)}
	default:
		return nil
	}
}
