package reseal

import "testing"

// No message makes a decoder panic, and each value that one finds can be replaced.
func FuzzKinds(f *testing.F) {
	f.Add("vault.alice.sec_1", []byte{10, 1, 'x'})
	f.Add("acct.carol.key.1", []byte{8, 1, 18, 3, 10, 1, 'x'})
	f.Add("acct.cluster.signer.1", []byte{8, 1, 58, 2, 8, 1})
	f.Fuzz(func(t *testing.T, subject string, data []byte) {
		for i := range kinds {
			x, err := kinds[i].parse(subject, data)
			if err == nil && (x.in == nil || x.sealed == nil || x.at.Field == "") {
				t.Errorf("%s: %+v", kinds[i].subject, x)
			}
		}
	})
}
