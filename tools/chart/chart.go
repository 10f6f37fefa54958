// Package chart holds the tests of deploy/helm.
package chart
