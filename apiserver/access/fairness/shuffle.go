package fairness

import "github.com/cespare/xxhash/v2"

// flowHash is the hash of a flow: its schema's name and what distinguishes it.
func flowHash(schema, distinguisher string) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(schema) // never fails
	_, _ = d.Write([]byte{0})
	_, _ = d.WriteString(distinguisher)
	return d.Sum64()
}

// maxHand bounds hands. Validation allows no configuration whose hands need more
// than 60 bits of the hash, and 60 bits deal at most ten cards of 64.
const maxHand = 16

// deal returns the cards of a flow: size different numbers below deck, all hands
// about equally likely. Two flows seldom have the same hand, so a flow that fills
// its own queues leaves others at least one that it does not fill.
func deal(hash uint64, deck, size int, hand *[maxHand]int) []int {
	size = min(size, deck, maxHand)
	for i := range size {
		left := uint64(deck - i)
		card := int(hash % left)
		hash /= left
		// The card is the number of one of those that are left: the cards dealt
		// before are in ascending order, each at or below it moves it up by one.
		at := 0
		for at < i && hand[at] <= card {
			card++
			at++
		}
		copy(hand[at+1:i+1], hand[at:i])
		hand[at] = card
	}
	return hand[:size]
}
