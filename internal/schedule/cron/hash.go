package cron

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
)

// hashed reads H, H/step, H(a-b) and H(a-b)/step: a value, or with a step the
// first of the values, that the key picks, so that jobs written alike do not
// all run at once. It follows Jenkins, where the notation comes from: dates end
// at 28 unless a range is given. The pick is part of what is stored: changing
// the hash would move tenants' jobs.
func (f *fieldParser) hashed(text string, step int, stepped bool) error {
	g := f.grammar
	if g.low == minYear {
		//lint:ignore ST1005 the capital is the letter that the tenant wrote
		return errors.New("H is not possible in a year; write the year")
	}
	low, high := g.low, g.hashHigh
	if text != "H" {
		inside, ok := strings.CutPrefix(text, "H(")
		inside, closed := strings.CutSuffix(inside, ")")
		if !ok || !closed || !strings.Contains(inside, "-") {
			return fmt.Errorf("%s is not understood; write H, H/5, H(0-9) or H(0-9)/5", f.quote(text))
		}
		var err error
		if low, high, err = f.span(inside, false); err != nil {
			return err
		}
	}
	if !stepped {
		v := low + int(f.pick()%uint64(high-low+1))
		f.addRange(v, v, 1)
		return nil
	}
	if step > high-low+1 {
		return fmt.Errorf("the step /%d is longer than the range %d-%d that H picks from", step, low, high)
	}
	f.addRange(low+int(f.pick()%uint64(step)), high, step)
	return nil
}

// pick is a number that depends on the key and on the field alone.
func (f *fieldParser) pick() uint64 {
	h := fnv.New64a()
	h.Write([]byte(f.grammar.name))
	h.Write([]byte{0})
	h.Write([]byte(f.key))
	v := h.Sum64() // FNV's low bits are weak for similar keys; splitmix64 spreads them
	v ^= v >> 30
	v *= 0xbf58476d1ce4e5b9
	v ^= v >> 27
	v *= 0x94d049bb133111eb
	return v ^ v>>31
}
