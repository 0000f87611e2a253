require_relative "environment"

load ARGV.fetch(0)
