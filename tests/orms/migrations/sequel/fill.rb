require "sequel"

side = ARGV.fetch(0)
DB = Sequel.connect(ENV["DATABASE_URL"])
class Author < Sequel::Model
  one_to_many :books
end
class Book < Sequel::Model
  one_to_many :copies
end
class Copy < Sequel::Model
end

DB.transaction do
  200.times do |n|
    author = Author.create(name: "#{side}#{n}")
    2.times { |i| author.add_book(title: "#{author.name} #{i}").add_copy({}) }
  end
end
