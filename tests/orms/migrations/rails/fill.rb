require_relative "environment"

side = ARGV.fetch(0)
Book.transaction do
  tags = Array.new(10) { |n| Tag.create!(name: "#{side}#{n}") }
  100.times do |n|
    author = Author.create!(name: "#{side}#{n}")
    2.times { |i| author.books.create!(title: "#{author.name} #{i}", tags: tags[i, 2]) }
  end
  now = Time.now
  rows = Array.new(100) { |n| { name: "#{side}#{n + 100}", created_at: now, updated_at: now } }
  ids = Author.insert_all!(rows).map { |row| row["id"] }
  Book.insert_all!((ids * 2).map { |id| { title: side, author_id: id, created_at: now, updated_at: now } })
end
