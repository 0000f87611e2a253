Sequel.migration do
  change do
    create_table(:authors) do
      primary_key :id, type: :Bignum
      String :name, null: false
    end
    create_table(:books) do
      primary_key :id, type: :Bignum
      String :title, null: false
      foreign_key :author_id, :authors, type: :Bignum, null: false
    end
    create_table(:copies) do
      primary_key :id, type: :Bignum
      foreign_key :book_id, :books, type: :Bignum, null: false
    end
  end
end
