package lives

// SetWindow sets the number of entries in memory.
func (f *Feed) SetWindow(n int) { f.size = n }
