// Package rekey finishes the rotation of a data key: it seals stored values again, and removes
// the replaced key when no value needs it any more.
//
// # Order
// A replaced key is removed after two searches that found no value of it in the log, with
// [Config.Grace] before the first and between both. By then every service seals with the current key
// (see [seal.Ring.Seal]), and a request that copies a sealed value from one record to another
// has ended. Until then a search names a stream that still has such a value.
//
// # Interruptions
// All progress is in the log: values name their key. Any number of reapers may do this at the same
// time, and one that restarts begins again with what is left.
package rekey
